"""The protocol of a connection without sockets: what each message comes to, whatever comes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rpcmq.adapters.rate_limits import TokenBucket
from rpcmq.adapters.rights import parse_right
from rpcmq.errors import CallTimeout, RemoteError
from rpcmq.gateway.effects import BAD_TOKEN, INVALID_DATA, POLICY_VIOLATION, Close, Effect, End, Grant, Send, Start
from rpcmq.gateway.messages import MAX_ID, MessageCodec, Request
from rpcmq.gateway.outbox import Total
from rpcmq.gateway.session import Session, SessionLimits, SessionState
from rpcmq.gateway.tokens import VERBS, Token

TOKEN = Token("web", "0" * 64, (parse_right("all:a.#,b", VERBS, VERBS),))
CODEC = MessageCodec(1 << 16, 1 << 16)


def session(limits: SessionLimits | None = None, token: Token = TOKEN, held: Total | None = None) -> Session:
    def find(secret: str) -> Token | str:
        return token if secret == "good" else "the token is unknown"

    def rate(_: Token) -> TokenBucket | None:
        return None

    return Session(CODEC, limits or SessionLimits(messages_per_second=0), "", find, rate, held or Total(1 << 28), 0.0)


def opened(limits: SessionLimits | None = None, token: Token = TOKEN, held: Total | None = None) -> Session:
    made = session(limits, token, held)
    told(made.receive(0.0, '{"op": "hello", "version": 1, "token": "good"}'))
    assert made.state is SessionState.OPEN
    return made


def told(effects: list[Effect]) -> dict[str, Any]:
    """The one message that is sent."""
    (effect,) = effects
    assert isinstance(effect, Send)
    found: dict[str, Any] = json.loads(effect.message)
    return found


def say(made: Session, **message: Any) -> list[Effect]:
    return made.receive(0.0, json.dumps(message))


def call(made: Session, number: int, **members: Any) -> list[Effect]:
    return say(made, **{"op": "call", "id": number, "topic": "a", "method": "m"} | members)


def test_a_call_begins_and_ends_once() -> None:
    made = opened()
    assert call(made, 1, args={"x": 1}, timeout=3) == [Start(Request(1, "call", "a", "", "m", {"x": 1}, timeout=3.0))]
    assert told(made.result(1, [1, 2])) == {"op": "result", "id": 1, "value": [1, 2]}
    assert made.result(1, 3) == made.failed(1, ValueError()) == made.end(1) == []
    assert made.running == {}


def test_an_error_has_its_fields() -> None:
    made = opened()
    call(made, 1)
    error = told(made.failed(1, CallTimeout("queued 5 s", {"state": "queued"})))["error"]
    assert error == {"type": "CallTimeout", "text": "queued 5 s", "details": {"state": "queued"}}
    call(made, 2)
    remote = RemoteError("ValueError", "no", "secret traceback", "node-1", (1, "no"))
    error = told(made.failed(2, remote))["error"]
    assert error == {"type": "RemoteError", "text": "no", "exception": "ValueError", "args": [1, "no"], "causes": []}
    call(made, 3)
    assert told(made.failed(3, KeyError("internal")))["error"]["type"] == "InternalError"


def test_a_result_that_cannot_be_sent_is_an_error() -> None:
    made = opened()
    call(made, 1)
    assert told(made.result(1, object()))["error"]["type"] == "PayloadError"
    call(made, 2)
    error = told(made.result(2, "x" * 100_000))["error"]
    assert error["type"] == "PayloadError" and "max_bytes" in error["text"]
    call(made, 3)
    details = {"big": "x" * 100_000}
    assert told(made.failed(3, CallTimeout("late", details)))["error"] == {"type": "CallTimeout", "text": "late"}


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", POLICY_VIOLATION),
        ('{"op": "call", "id": 1, "topic": "a", "method": "m"}', POLICY_VIOLATION),
        ('{"op": "hello"}', POLICY_VIOLATION),
        ('{"op": "hello", "version": 2, "token": "good"}', POLICY_VIOLATION),
        ('{"op": "hello", "version": 1, "token": 7}', POLICY_VIOLATION),
        ('{"op": "hello", "version": 1, "token": "bad"}', BAD_TOKEN),
    ],
)
def test_without_a_good_hello_nothing_is_done(text: str, code: int) -> None:
    made = session()
    (effect,) = made.receive(0.0, text)
    assert isinstance(effect, Close) and effect.code == code
    assert made.state is SessionState.CLOSED and made.receive(0.0, text) == []


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "7", '"text"', "null", "{}", '{"op": 7}', '{"op": "nope"}', '{"op": ["call"]}', "[" * 5000,
        '{"op":"call"}', '{"op":"call","id":"1"}', '{"op":"call","id":1.5}', '{"op":"call","id":-1}',
        '{"op":"call","id":true}', f'{{"op":"call","id":{MAX_ID + 1}}}', '{"op":"ping"}', "\ud800",
        '{"op":"hello","version":1,"token":"good"}', '{"op":"call","id":1,"id":[]}', "1e999", "NaN",
    ],
)  # fmt: skip
def test_a_message_that_nobody_can_be_answered_about_ends_the_connection(text: str) -> None:
    made = opened()
    call(made, 77)
    effects = made.receive(0.0, text)
    assert isinstance(effects[-1], Close) and effects[-1].code in (INVALID_DATA, POLICY_VIOLATION)
    assert effects[:-1] == [End(77)]


@pytest.mark.parametrize(
    ("members", "text"),
    [
        ({"op": "nope"}, "op 'nope' is unknown"),
        ({"topic": ""}, "topic is missing"),
        ({"topic": 7}, "topic is a text"),
        ({"topic": "x" * 256}, "more than 255 bytes"),
        ({"method": None}, "method is a text"),
        ({"args": []}, "args is an object"),
        ({"args": {"$": "dict", "v": [[1, 2]]}}, "args is an object"),
        ({"timeout": 0}, "timeout is a number"),
        ({"timeout": "5"}, "timeout is a number"),
        ({"timeout": True}, "timeout is a number"),
        ({"timeout": 10**400}, "timeout is a number"),
        ({"mandatory": 1}, "mandatory is true or false"),
        ({"op": "stream", "credit": 0}, "credit is an integer"),
        ({"op": "stream", "credit": 10**9}, "credit is an integer"),
        ({"surprise": 1}, "'surprise' is unknown"),
        ({"context": []}, "context is an object"),
        ({"args": {"x": {"$": "decimal", "v": "abc"}}}, "malformed typed JSON"),
        ({"args": {"x": {"$": "nope", "v": 1}}}, "unknown tag"),
        ({"args": {"x": {"$": "exception", "v": {"type": "builtins:ValueError", "args": []}}}}, "not registered"),
    ],
)
def test_a_request_that_cannot_be_done_is_answered_with_why(members: dict[str, Any], text: str) -> None:
    made = opened()
    answer = told(call(made, 5, **members))
    assert (answer["op"], answer["id"]) == ("error", 5)
    assert text in answer["error"]["text"] and answer["error"]["type"] in ("UsageError", "PayloadRefused")
    assert made.running == {}


def test_json_that_is_too_deep_has_a_member_twice_or_is_no_number_is_refused() -> None:
    made = opened()
    head = '{"op":"call","id":3,"topic":"a","method":"m","args":'
    for args in ('{"x":' + "[" * 200 + "]" * 200 + "}", '{"x":1,"x":2}', '{"x":NaN}', '{"x":Infinity}'):
        assert told(made.receive(0.0, head + args + "}"))["error"]["type"] == "PayloadRefused"
    # A number that is too large for a double is infinite, as every reader of JSON may have it.
    (effect,) = made.receive(0.0, head + '{"x":1e999}}')
    assert isinstance(effect, Start) and effect.request.args == {"x": float("inf")}
    assert told(made.receive(0.0, head.replace("3", "4") + '{},"timeout":1e999}'))["error"]["type"] == "UsageError"


def test_an_id_names_one_request_at_a_time() -> None:
    made = opened()
    call(made, 1)
    effects = call(made, 1)
    assert effects == [End(1), Close(POLICY_VIOLATION, "id 1 names a request that has not ended")]
    made = opened()
    call(made, 1)
    made.result(1, None)
    assert isinstance(call(made, 1)[0], Start)
    effects = call(made, 1, surprise=1)
    assert effects[0] == End(1) and isinstance(effects[1], Close)


def test_credit_and_cancel_for_what_has_ended_do_nothing() -> None:
    made = opened()
    assert say(made, op="credit", id=9, count=1) == say(made, op="cancel", id=9) == []
    call(made, 1, op="stream")
    assert say(made, op="credit", id=1, count=5) == [Grant(1, 5)]
    effects = say(made, op="cancel", id=1)
    assert effects[0] == End(1) and told(effects[1:])["error"]["type"] == "CallCancelled"
    assert say(made, op="credit", id=1, count=5) == []


def test_events_beyond_the_room_are_lost_and_told_before_the_next() -> None:
    made = opened()
    say(made, op="subscribe", id=1, pattern="a.#")
    assert told(made.result(1, None)) == {"op": "result", "id": 1, "value": None}
    tail = CODEC.event_tail("a.x", {"free": 3})
    assert made.event(1, tail, 10) == made.event(1, tail, 10) == []
    lost, event = made.event(1, tail, 1000)
    assert told([lost]) == {"op": "lost", "id": 1, "count": 2}
    assert told([event]) == {"op": "event", "id": 1, "topic": "a.x", "payload": {"free": 3}}
    made.lost(1, 4)
    assert told(made.tell_lost(1))["count"] == 4 and made.tell_lost(1) == []
    assert say(made, op="cancel", id=1)[0] == End(1)
    assert made.event(1, tail, 1000) == made.lost(1, 1) == made.tell_lost(1) == []


def test_the_rate_spares_what_is_about_requests_that_run() -> None:
    made = opened(SessionLimits(messages_per_second=2))
    call(made, 1, op="stream")
    assert told(say(made, op="ping", id=2)) == {"op": "pong", "id": 2}
    for number in range(100):
        assert told(made.item(1, number))["value"] == number
        assert say(made, op="credit", id=1, count=1) == [Grant(1, 1)]
    refused = told(call(made, 3))["error"]
    assert refused["type"] == "Overloaded" and refused["details"] == {"retry_after": 0.5}
    assert isinstance(made.receive(10.0, '{"op":"call","id":4,"topic":"a","method":"m"}')[0], Start)
    for number in range(5, 20):
        effects = made.receive(10.0, f'{{"op":"call","id":{number},"topic":"a","method":"m"}}')
        if isinstance(effects[-1], Close):
            break
    else:
        raise AssertionError("never cut off")


def test_credits_beyond_the_items_of_a_stream_count_as_messages() -> None:
    made = opened(SessionLimits(messages_per_second=10))
    call(made, 1, op="stream")
    effects = [say(made, op="credit", id=1, count=1000) for _ in range(100)]
    # The call and nine of them are within the rate, one is free, ten more are let pass, and then it is an attack.
    assert effects[:20] == [[Grant(1, 1000)]] * 20
    assert effects[20] == [End(1), Close(POLICY_VIOLATION, "more messages than limits.messages_per_second = 10")]


def test_requests_that_run_take_no_more_memory_than_may() -> None:
    total = Total(100_000)
    one, other = (
        opened(SessionLimits(request_bytes=50_000, messages_per_second=0), held=total),
        opened(SessionLimits(request_bytes=200_000, messages_per_second=0), held=total),
    )
    values: list[dict[str, int]] = [{}] * 400  # 1,600 bytes of text that are 50,000 of memory
    assert isinstance(call(one, 1, args={"x": values})[0], Start)
    error = told(call(one, 2, args={"x": values}))["error"]
    assert error["type"] == "Overloaded" and "limits.request_bytes = 50000" in error["text"]
    assert isinstance(call(other, 1, args={"x": values[:300]})[0], Start)
    assert "limits.total_request_bytes = 100000" in told(call(other, 2, args={"x": values}))["error"]["text"]
    one.result(1, None)
    assert isinstance(call(other, 2, args={"x": values[:200]})[0], Start)
    one.close(1000, ""), other.close(1000, "")
    assert total.size == 0


def test_while_it_drains_what_runs_goes_on_and_new_ones_are_refused() -> None:
    made = opened()
    call(made, 1)
    assert told(made.drain()) == {"op": "draining"} and made.drain() == []
    assert told(call(made, 2))["error"]["type"] == "Draining"
    assert told(made.result(1, 5))["value"] == 5


def test_other_rights_end_the_subscriptions_that_they_do_not_cover() -> None:
    made = opened()
    for number, pattern in ((1, "a.x"), (2, "b")):
        say(made, op="subscribe", id=number, pattern=pattern)
    fewer = Token("web", "0" * 64, (parse_right("subscribe:b", VERBS, VERBS),))
    effects = made.token_changed(fewer, "")
    assert effects[0] == End(1) and told(effects[1:])["error"]["type"] == "AccessDenied"
    assert list(made.subscriptions) == [2]
    assert made.token_changed(None, "revoked") == [End(2), Close(BAD_TOKEN, "revoked")]


# --- whatever comes ------------------------------------------------------------------------------

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["call", "a", "$", "v"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.text(max_size=5) | st.sampled_from(["op", "id", "$", "v", "args", "topic"]), inner, max_size=4
        )
    ),
    max_leaves=10,
)


@given(st.text(max_size=200) | JSON.map(json.dumps))
@settings(max_examples=100)
def test_any_text_has_an_answer_or_ends_the_connection(text: str) -> None:
    for made in (session(), opened()):
        effects = made.receive(0.0, text)
        assert all(isinstance(effect, Send | Close | Start | Grant | End) for effect in effects)


@given(st.dictionaries(st.sampled_from(["topic", "method", "args", "timeout", "exchange", "context", "credit"]), JSON))
@settings(max_examples=100)
def test_any_members_of_a_request_are_done_or_refused_with_its_id(members: dict[str, Any]) -> None:
    made = opened()
    for op in ("call", "stream", "cast"):
        effects = made.receive(0.0, json.dumps({**members, "op": op, "id": 6}))
        if isinstance(effects[0], Start):
            made.result(6, None)
        else:
            assert told(effects)["id"] == 6
        assert 6 not in made.running


class Conversations(RuleBasedStateMachine):
    """Requests begin and end in any order: each has one end, and none comes to life again."""

    @initialize()
    def begin(self) -> None:
        self.session = opened(SessionLimits(requests=4, subscriptions=2, messages_per_second=0))
        self.open: dict[int, str] = {}

    @precondition(lambda self: self.session.state is not SessionState.CLOSED)
    @rule(
        number=st.integers(1, 9),
        op=st.sampled_from(["call", "stream", "subscribe", "cast"]),
        topic=st.sampled_from("abc"),
    )
    def ask(self, number: int, op: str, topic: str) -> None:
        named = {"pattern": topic} if op == "subscribe" else {"topic": topic, "method": "m"}
        effects = say(self.session, op=op, id=number, **named)
        if number in self.open:
            assert isinstance(effects[-1], Close)
            self.open.clear()
        elif isinstance(effects[0], Start):
            assert topic != "c" and self.session.state is SessionState.OPEN
            self.open[number] = op
        else:
            assert told(effects)["op"] == "error"

    @rule(number=st.integers(1, 9), how=st.sampled_from(["result", "failed", "end", "cancel"]))
    def finish(self, number: int, how: str) -> None:
        op = self.open.get(number)
        match how:
            case "cancel":
                effects = say(self.session, op="cancel", id=number)
            case "failed":
                effects = self.session.failed(number, CallTimeout("late"))
            case "result":
                effects = self.session.result(number, 1)
            case _:
                effects = self.session.end(number)
        assert bool(effects) == (op is not None)
        if not (how == "result" and op == "subscribe"):
            self.open.pop(number, None)

    @rule(number=st.integers(1, 9), room=st.sampled_from([0, 1000]))
    def happen(self, number: int, room: int) -> None:
        tail = CODEC.event_tail("a", 1)
        for effects in (self.session.event(number, tail, room), self.session.item(number, 1)):
            assert not effects or number in self.open

    @rule()
    def drain(self) -> None:
        self.session.drain()

    @invariant()
    def agree(self) -> None:
        assert self.session.running.keys() == self.open.keys()
        assert set(self.session.subscriptions) == {n for n, op in self.open.items() if op == "subscribe"}
        assert len(self.session.subscriptions) <= 2 and len(self.open) - len(self.session.subscriptions) <= 4


TestConversations = Conversations.TestCase
