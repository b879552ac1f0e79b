"""Calls: replies, remote exceptions, timeouts, heartbeats of long ones."""

from __future__ import annotations

import datetime
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import oslo_messaging
import pytest
from kinds import unless_held_up
from oslo_messaging import MessagingTimeout, RemoteError

from rpcmq_oslo.codec import CODEC

Make = Callable[..., Any]


class NotPrintable(Exception):
    def __init__(self) -> None:
        super().__init__(threading.Lock())


class Evil(Exception):
    def __str__(self) -> str:
        raise self


class Lazy:
    """A value that is loaded when it is read, which fails."""

    def __iter__(self) -> Iterator[Any]:
        raise Evil


class Endpoint:
    def __init__(self, name: str = "") -> None:
        self.name = name
        self.go_on = threading.Event()
        self.seen: list[Any] = []

    def echo(self, ctxt: Any, **args: Any) -> Any:
        self.seen.append((ctxt, args))
        return [ctxt, args]

    def nothing(self, ctxt: Any) -> None:
        return None

    def who(self, ctxt: Any) -> str:
        return self.name

    def raise_it(self, ctxt: Any, what: str) -> None:
        raise {
            "lookup": KeyError("no such node"),
            "own": NotPrintable(),
            "timeout": MessagingTimeout("inner"),
            "evil": Evil(),
            # Text, arguments and traceback have it each.
            "large": ValueError("x" * (CODEC.max_bytes // 2)),
        }[what]

    def unserializable(self, ctxt: Any) -> Any:
        return {(1, 2): threading.Lock()}

    def lazy(self, ctxt: Any) -> Any:
        return {"rows": Lazy()}

    def hold(self, ctxt: Any) -> str:
        self.seen.append("held")
        self.go_on.wait(60)
        return "let go"


def test_a_call_returns_the_reply(serve: Make, client: Make) -> None:
    serve(Endpoint())
    context, args = {"user": "alice", "nested": {"a": [1, None]}}, {"n": 1, "text": "é"}
    assert client().call(context, "echo", **args) == [context, args]
    assert client().call({}, "nothing") is None


def test_values_are_made_primitive_as_oslo_serialization_does(serve: Make, client: Make) -> None:
    serve(Endpoint())
    number = uuid.uuid4()
    when = datetime.datetime(2026, 1, 2, 3, 4, 5)
    answer = client().call({}, "echo", a=(1, 2), b={"x"}, c=number, d=when, e={1: "one"})
    assert answer[1] == {
        "a": [1, 2],
        "b": ["x"],
        "c": str(number),
        "d": "2026-01-02T03:04:05.000000",
        "e": {"1": "one"},
    }


def test_the_callers_dicts_are_not_changed(serve: Make, transport: Make) -> None:
    serve(Endpoint())
    context, message = {"user": "a"}, {"method": "echo", "args": {"n": (1,)}, "odd": 1}
    target = oslo_messaging.Target(topic="compute")
    assert transport()._send(target, context, message, wait_for_reply=True, timeout=60) == [{"user": "a"}, {"n": [1]}]
    assert (context, message) == ({"user": "a"}, {"method": "echo", "args": {"n": (1,)}, "odd": 1})


def test_a_builtin_exception_is_raised_as_itself(serve: Make, client: Make) -> None:
    serve(Endpoint())
    with pytest.raises(KeyError, match="no such node") as caught:
        client().call({}, "raise_it", what="lookup")
    assert "Traceback" in str(caught.value.args[0])


def test_an_exception_of_an_allowed_module_is_rebuilt_and_others_are_remote_errors(
    serve: Make, client: Make, transport: Make
) -> None:
    serve(Endpoint())
    allowing = transport(allowed_remote_exmods=["oslo_messaging.exceptions"])
    with pytest.raises(MessagingTimeout, match="inner") as caught:
        client(over=allowing).call({}, "raise_it", what="timeout")
    cls = type(caught.value)
    assert (cls.__name__, cls.__module__) == ("MessagingTimeout_Remote", "oslo_messaging.exceptions_Remote")
    with pytest.raises(RemoteError, match="inner") as other:
        client().call({}, "raise_it", what="timeout")
    assert (other.value.exc_type, other.value.value) == ("MessagingTimeout", "inner")
    assert other.value.traceback[-1].endswith("MessagingTimeout: inner\n")


def test_what_cannot_be_encoded_is_told(serve: Make, client: Make) -> None:
    serve(Endpoint())
    with pytest.raises(ValueError, match="the result of 'unserializable' cannot be sent"):
        client().call({}, "unserializable")
    with pytest.raises(RuntimeError, match=r"NotPrintable, which cannot be encoded"):
        client().call({}, "raise_it", what="own")
    with pytest.raises(ValueError, match=r"the exception of 'raise_it' cannot be sent: .* more than max_bytes"):
        client(timeout=90).call({}, "raise_it", what="large")
    with pytest.raises(oslo_messaging.MessagingException, match="cannot be encoded as JSON"):
        client().call({}, "echo", bad={(1, 2): 3})


def test_values_that_raise_when_they_are_read_are_told(serve: Make, client: Make) -> None:
    endpoint = Endpoint()
    serve(endpoint)
    told = r"cannot be encoded as JSON: Evil: \(str\(\) of the exception raised Evil\)"
    with pytest.raises(ValueError, match=f"the result of 'lazy' cannot be sent: it {told}"):
        client(timeout=60).call({}, "lazy")
    with pytest.raises(RuntimeError, match="Evil, which cannot be encoded"):
        client(timeout=60).call({}, "raise_it", what="evil")
    for use in (client().call, client().cast, client(target={"fanout": True}).cast):
        with pytest.raises(oslo_messaging.MessagingException, match=told):
            use({}, "echo", rows=Lazy())
    assert endpoint.seen == []


def test_an_unknown_method_is_told(serve: Make, client: Make) -> None:
    serve(Endpoint())
    with pytest.raises(RemoteError, match="Endpoint does not support RPC method nope"):
        client().call({}, "nope")


def test_a_timeout_says_why(serve: Make, client: Make) -> None:
    def told(caller: Any, method: str) -> str:
        # A router that is held up by a busy machine for longer than the caller waits for its reason gives none.
        for _ in range(5):
            with pytest.raises(MessagingTimeout) as caught:
                caller.call({}, method)
            if "the router was last heard" not in str(caught.value):
                break
        return str(caught.value)

    assert "no consumer on 'openstack/nobody.home'" in told(
        client("nobody", target={"server": "home"}, timeout=2), "who"
    )
    endpoint = Endpoint()
    serve(endpoint)
    text = told(client(timeout=2), "hold")
    endpoint.go_on.set()
    assert re.search(r"hold to openstack/compute: with .* for \d\.\d s, running", text), text


def test_a_call_for_a_server_never_falls_back_to_the_topic(serve: Make, client: Make) -> None:
    serve(Endpoint())
    with pytest.raises(MessagingTimeout):
        client(target={"server": "node-2"}, timeout=0.5).call({}, "who")


def test_calls_of_a_topic_are_shared_and_those_of_a_server_are_not(serve: Make, client: Make) -> None:
    for name in ("node-1", "node-2", "node.3.example.org"):
        serve(Endpoint(name), server=name)
    topic = client()
    assert {topic.call({}, "who") for _ in range(14)} == {"node-1", "node-2", "node.3.example.org"}
    for name in ("node-1", "node-2", "node.3.example.org"):
        assert [topic.prepare(server=name).call({}, "who") for _ in range(3)] == [name] * 3


def test_exchanges_virtual_hosts_and_dots_keep_servers_apart(
    serve: Make, client: Make, transport: Make, router: Any
) -> None:
    cell = transport(router.url + "cell-1")
    serve(Endpoint("a.b/c"), topic="a.b", server="c")
    serve(Endpoint("a/b.c"), topic="a", server="b.c", exchange="other")
    serve(Endpoint("cell"), topic="a.b", server="c", over=cell)
    serve(Endpoint("é"), topic="thème", server="nœud")
    assert client("a.b", target={"server": "c"}).call({}, "who") == "a.b/c"
    assert client("a", target={"server": "b.c", "exchange": "other"}).call({}, "who") == "a/b.c"
    assert client("a.b", target={"server": "c"}, over=cell).call({}, "who") == "cell"
    assert client("thème", target={"server": "nœud"}).call({}, "who") == "é"
    with pytest.raises(oslo_messaging.InvalidTarget, match="at most 255"):
        client("x" * 256).call({}, "who")


def test_several_servers_of_one_name_share_its_calls(serve: Make, client: Make) -> None:
    """As workers of one service on one host do."""
    serve(Endpoint("first"))
    serve(Endpoint("second"))
    named = client(target={"server": "node-1"})
    assert {named.call({}, "who") for _ in range(14)} == {"first", "second"}


def test_heartbeats_keep_a_long_call_alive(serve: Make, client: Make) -> None:
    class Slow(Endpoint):
        def hold(self, ctxt: Any) -> str:
            time.sleep(6.0)
            return "let go"

    serve(Slow())
    caller = client(timeout=60, call_monitor_timeout=4)
    assert unless_held_up(lambda: caller.call({}, "hold"), "no sign of life for 4 s") == "let go"


@pytest.mark.parametrize("seconds", [10**9, float("inf")])
def test_times_beyond_those_that_rpcmq_can_wait_are_no_bound(serve: Make, client: Make, seconds: float) -> None:
    serve(Endpoint())
    assert client(timeout=seconds, call_monitor_timeout=seconds).call({}, "nothing") is None


def test_a_server_without_heartbeats_is_given_up(serve: Make, client: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    from rpcmq_oslo.incoming import Incoming

    monkeypatch.setattr(Incoming, "heartbeat", lambda self: None)
    endpoint = Endpoint()
    serve(endpoint)
    with pytest.raises(MessagingTimeout, match="no sign of life for 2 s"):
        client(timeout=60, call_monitor_timeout=2).call({}, "hold")
    endpoint.go_on.set()


def test_at_least_once_tells_at_once_that_nobody_listens(client: Make) -> None:
    options = oslo_messaging.TransportOptions(at_least_once=True)
    alone = client("nobody", timeout=30, transport_options=options)
    with pytest.raises(oslo_messaging.MessageUndeliverable) as caught:
        alone.call({}, "who")
    error = caught.value
    assert (error.exchange, error.routing_key, error.message["method"]) == ("openstack", "nobody", "who")
    with pytest.raises(oslo_messaging.MessageUndeliverable):
        alone.cast({}, "who")
    with pytest.raises(oslo_messaging.MessageUndeliverable):
        alone.prepare(fanout=True).cast({}, "who")
