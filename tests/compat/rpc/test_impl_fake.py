"""nova.rpc.impl_fake: calls within the process, in each era's way."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import gevent
import pytest
from gevent.event import Event

import compat.nova

OLD = ["diablo", "essex"]
NEW = ["folsom", "grizzly", "havana"]
CONF = object()


class Refused(Exception):
    """The exception that handlers raise here."""


class Receiver:
    """Methods as they were to Essex, and by dispatch from Folsom on."""

    def __init__(self) -> None:
        self.ran: list[Any] = []
        self.contexts: list[Any] = []
        self.release = Event()

    def echo(self, context: Any, value: Any) -> Any:
        self.ran.append(value)
        self.contexts.append(context)
        return value

    def many(self, context: Any, values: list[Any]) -> Any:
        self.ran.append("begun")
        yield from values
        self.ran.append("ended")

    def replies(self, context: Any, values: list[Any], ending: bool = False) -> Any:
        for value in values:
            context.reply(value)
        if ending:
            context.reply(ending=True)
            context.reply("too late")
            return "too late"
        return None

    def result_after_reply(self, context: Any) -> str:
        context.reply("first")
        return "last"

    def ends_with_value(self, context: Any) -> None:
        context.reply("one")
        context.reply("dropped", ending=True)

    def fail(self, context: Any) -> None:
        self.ran.append("fail")
        raise Refused("42")

    def fails_by_reply(self, context: Any) -> None:
        try:
            raise Refused("42")
        except Refused as error:
            context.reply(failure=(type(error), error, error.__traceback__))

    def leave(self, context: Any) -> None:
        raise SystemExit(1)

    def block(self, context: Any) -> str:
        self.release.wait(20)
        return "released"


class Rpc:
    """The backend of one era, called in that era's style."""

    def __init__(self, load: Any, era: str) -> None:
        self.era = era
        self.conf = (CONF,) if era in NEW else ()
        self.impl = load("nova.rpc.impl_fake")
        self.common = load("nova.rpc.common")
        self.context = load("nova.context").RequestContext("ada", "sums")
        self.load = load

    def proxy(self, receiver: Any) -> Any:
        return receiver if self.era not in NEW else self.load("nova.rpc.dispatcher").RpcDispatcher([receiver])

    def consume(self, topic: str, receiver: Any, fanout: bool = False) -> Any:
        connection = self.impl.create_connection(*self.conf, new=True)
        connection.create_consumer(topic, self.proxy(receiver), fanout)
        connection.consume_in_thread()
        return connection

    def send(self, verb: str, topic: str, method: str, *more: Any, **args: Any) -> Any:
        msg = {"method": method, "args": args}
        server = ({"hostname": "cell"},) if verb.endswith("server") else ()
        return getattr(self.impl, verb)(*self.conf, self.context, *server, topic, msg, *more)


@pytest.fixture
def rpc_of(at):
    return lambda era: Rpc(at(era), era)


@pytest.fixture(params=[*OLD, *NEW])
def rpc(request, rpc_of):
    return rpc_of(request.param)


# --- calls --------------------------------------------------------------------------------------


def test_call_gives_the_value(rpc):
    receiver = Receiver()
    rpc.consume("test", receiver)
    assert rpc.send("call", "test", "echo", value=42) == 42
    assert rpc.send("call", "test", "echo", value=None) is None
    assert receiver.ran == [42, None]


def test_call_runs_the_first_consumer(rpc):
    first, second = Receiver(), Receiver()
    connection = rpc.consume("test", first)
    rpc.consume("test", second)
    for value in (1, 2):
        rpc.send("call", "test", "echo", value=value)
    assert (first.ran, second.ran) == ([1, 2], [])
    connection.close()
    rpc.send("call", "test", "echo", value=3)
    assert (first.ran, second.ran) == ([1, 2], [3])


def test_topic_of_a_host_is_another_topic(rpc):
    receiver = Receiver()
    rpc.consume("test.host", receiver)
    rpc.send("cast", "test", "echo", value=1)
    assert receiver.ran == []
    rpc.send("cast", "test.host", "echo", value=1)
    assert receiver.ran == [1]


@pytest.mark.parametrize(
    ("method", "args", "values"),
    [
        ("many", {"values": [1, 2, 3]}, [1, 2, 3]),
        ("many", {"values": [None, None, None]}, [None, None, None]),
        ("many", {"values": []}, []),
        ("echo", {"value": [1, 2]}, [[1, 2]]),
        ("replies", {"values": [1, 2]}, [1, 2]),
        ("replies", {"values": []}, [None]),
        ("replies", {"values": [1, None], "ending": True}, [1, None]),
        ("replies", {"values": [], "ending": True}, []),
        ("result_after_reply", {}, ["first", "last"]),
        ("ends_with_value", {}, ["one"]),
    ],
)
def test_multicall_is_a_list_and_call_its_last(rpc, method, args, values):
    rpc.consume("test", Receiver())
    assert rpc.send("multicall", "test", method, **args) == values
    assert rpc.send("call", "test", method, **args) == (values[-1] if values else None)


def test_handler_may_call_its_own_topic(rpc):
    class Nested(Receiver):
        def outer(self, context: Any, value: Any) -> Any:
            return rpc.send("call", "test", "echo", value=value)

    rpc.consume("test", Nested())
    assert rpc.send("call", "test", "outer", value=5) == 5


@pytest.mark.parametrize("era", [*OLD, "folsom"])
def test_no_consumer_gives_none(rpc_of, era):
    rpc = rpc_of(era)
    assert rpc.send("call", "test", "echo", value=1) is None
    assert rpc.send("multicall", "test", "echo", value=1) == [None]


@pytest.mark.parametrize("era", ["grizzly", "havana"])
def test_no_consumer_is_a_timeout_from_grizzly_on(rpc_of, era):
    rpc = rpc_of(era)
    for verb in ("call", "multicall"):
        with pytest.raises(rpc.common.Timeout):
            rpc.send(verb, "test", "echo", value=1)
    rpc.send("cast", "test", "echo", value=1)


@pytest.mark.parametrize("msg", [{}, {"args": {"value": 1}}, {"method": ""}])
def test_no_method(rpc, msg):
    receiver = Receiver()
    rpc.consume("test", receiver)
    assert rpc.impl.call(*rpc.conf, rpc.context, "test", msg) is None
    for verb in ("multicall", "cast", "fanout_cast"):
        assert not getattr(rpc.impl, verb)(*rpc.conf, rpc.context, "test", msg)
    assert receiver.ran == []


# --- exceptions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("era", OLD)
@pytest.mark.parametrize("method", ["fail", "fails_by_reply"])
def test_remote_error_to_essex(rpc_of, era, method):
    rpc = rpc_of(era)
    rpc.consume("test", Receiver())
    for verb in ("call", "multicall"):
        with pytest.raises(rpc.common.RemoteError) as caught:
            rpc.send(verb, "test", method)
        assert (caught.value.exc_type, int(caught.value.value)) == ("Refused", 42)
        assert "Refused" in caught.value.traceback and __file__ in caught.value.traceback


@pytest.mark.parametrize("era", NEW)
@pytest.mark.parametrize("method", ["fail", "fails_by_reply"])
def test_the_exception_itself_from_folsom_on(rpc_of, era, method):
    rpc = rpc_of(era)
    rpc.consume("test", Receiver())
    with pytest.raises(Refused, match="42"):
        rpc.send("call", "test", method)


def test_client_exception_gives_the_inner_one(rpc_of):
    rpc = rpc_of("grizzly")

    class Careful:
        @rpc.common.client_exceptions(Refused)
        def fail(self, context: Any) -> None:
            raise Refused("42")

    rpc.consume("test", Careful())
    with pytest.raises(Refused, match="42"):
        rpc.send("call", "test", "fail")


def test_what_ends_a_thread_does_not_end_the_caller(rpc):
    rpc.consume("test", Receiver())
    with pytest.raises(rpc.common.RemoteError, match="SystemExit"):
        rpc.send("call", "test", "leave")


@pytest.mark.parametrize("era", OLD)
@pytest.mark.parametrize("verb", ["call", "multicall", "cast", "fanout_cast"])
def test_unknown_method_reaches_the_caller_to_essex(rpc_of, era, verb):
    rpc = rpc_of(era)
    rpc.consume("test", Receiver())
    with pytest.raises(AttributeError, match="nothing"):
        rpc.send(verb, "test", "nothing")


def test_unknown_method_from_folsom_on(rpc_of):
    for era in NEW:
        rpc = rpc_of(era)
        rpc.load("nova.openstack.common.rpc")
        rpc.consume("test", Receiver())
        with pytest.raises(AttributeError, match="nothing"):
            rpc.send("call", "test", "nothing")
        for verb in ("cast", "fanout_cast"):
            rpc.send(verb, "test", "nothing")


def test_wrong_arguments(rpc):
    rpc.consume("test", Receiver())
    expected = TypeError if rpc.era in NEW else rpc.common.RemoteError
    with pytest.raises(expected, match="wrong"):
        rpc.send("call", "test", "echo", wrong=1)


# --- casts and fan-outs -------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["cast", "cast_to_server"])
def test_cast_has_run_when_it_returns(rpc, verb):
    first, second = Receiver(), Receiver()
    rpc.consume("test", first)
    rpc.consume("test", second)
    assert rpc.send(verb, "test", "echo", value=1) is None
    assert (first.ran, second.ran) == ([1], [])
    assert rpc.send(verb, "test", "fail") is None
    assert rpc.send(verb, "nowhere", "echo", value=1) is None


def test_cast_runs_a_generator_to_its_end(rpc):
    receiver = Receiver()
    rpc.consume("test", receiver)
    rpc.send("cast", "test", "many", values=[1, 2])
    assert receiver.ran == ["begun", "ended"]


@pytest.mark.parametrize("verb", ["fanout_cast", "fanout_cast_to_server"])
def test_fanout_runs_all_consumers_of_the_topic(rpc, verb):
    service, other = Receiver(), Receiver()
    rpc.consume("test", service)
    rpc.consume("test", service, fanout=True)
    rpc.consume("test", other, fanout=True)
    assert rpc.send(verb, "test", "echo", value=1) is None
    assert (service.ran, other.ran) == ([1, 1], [1])
    # One that fails does not keep the others from it.
    rpc.send(verb, "test", "fail")
    assert (service.ran[2:], other.ran[1:]) == (["fail", "fail"], ["fail"])


def test_errors_that_a_cast_swallows(rpc_of):
    class Untouchable:
        def __getattr__(self, name: str) -> Any:
            raise AssertionError(name)

    for era in NEW:
        rpc = rpc_of(era)
        with rpc.impl.create_connection(CONF) as connection:
            connection.create_consumer("test", Untouchable())
            rpc.send("cast", "test", "echo", value=1)
    rpc = rpc_of("essex")
    rpc.impl.create_connection().create_consumer("test", Untouchable())
    with pytest.raises(AssertionError):
        rpc.send("cast", "test", "echo", value=1)


# --- timeouts -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("timeout", "patience"), [(None, None), (0, None), (0.5, 1), (1, 1), (1.5, 2), (60, 60)])
def test_caller_looks_once_a_second(rpc_of, timeout, patience):
    assert rpc_of("essex").impl._patience(timeout) == patience


def test_timeout_stops_the_handler(rpc):
    rpc.impl._LOOK = 0.01
    receiver = Receiver()
    rpc.consume("test", receiver)
    with pytest.raises(rpc.common.Timeout) as caught:
        rpc.send("call", "test", "block", 0.015)
    assert (caught.value.topic, caught.value.method) == ("test", "block")
    # The handler is gone: nobody waits for the event.
    gevent.sleep(0)
    assert receiver.release.linkcount() == 0


@pytest.mark.parametrize("timeout", [(), (None,), (0,), (5,)])
def test_no_timeout_while_there_is_time(rpc, timeout):
    receiver = Receiver()
    rpc.consume("test", receiver)
    gevent.spawn_later(0.01, receiver.release.set)
    assert rpc.send("call", "test", "block", *timeout) == "released"


# --- serialization ------------------------------------------------------------------------------

VERBS = ["call", "multicall", "cast", "fanout_cast", "notify", "cast_to_server", "fanout_cast_to_server"]


@pytest.mark.parametrize("verb", VERBS)
def test_unserializable_arguments_are_refused(rpc, verb):
    receiver = Receiver()
    rpc.consume("test", receiver)
    with pytest.raises(TypeError, match="value"):
        rpc.send(verb, "test", "echo", value=object())
    assert receiver.ran == []


@pytest.mark.parametrize("value", [datetime(2012, 4, 5), {1, 2}], ids=["datetime", "iterable"])
def test_folsom_also_takes_what_converts(rpc, value):
    rpc.consume("test", Receiver())
    if rpc.era in NEW:
        assert rpc.send("call", "test", "echo", value=value) == value
    else:
        with pytest.raises(TypeError):
            rpc.send("call", "test", "echo", value=value)


# --- contexts -----------------------------------------------------------------------------------


def test_handler_has_a_context_of_its_own(rpc):
    receiver = Receiver()
    rpc.consume("test", receiver)
    rpc.send("call", "test", "echo", value=1)
    [context] = receiver.contexts
    assert context is not rpc.context
    assert context.to_dict() == rpc.context.to_dict()
    request_context = rpc.load("nova.context").RequestContext
    assert isinstance(context, rpc.common.CommonRpcContext if rpc.era in NEW else request_context)
    assert type(context) is rpc.impl.RpcContext


def test_replies_by_a_copied_context_reach_the_caller(rpc_of):
    class Elevating:
        def many(self, context: Any) -> None:
            context.reply(1)
            admin = context.elevated()
            admin.reply(2)
            admin.reply(ending=True)
            context.reply("too late")

    for era in ("essex", "havana"):
        rpc = rpc_of(era)
        rpc.consume("test", Elevating())
        assert rpc.send("multicall", "test", "many") == [1, 2]


@pytest.mark.parametrize("era", ["essex", *NEW])
def test_context_is_in_the_store_of_the_handlers_thread(rpc_of, era):
    rpc = rpc_of(era)
    name = "nova.openstack.common.local" if era in NEW else "nova.local"
    store = rpc.load(name).store

    class Looking:
        def look(self, context: Any) -> bool:
            return store.context is context

    rpc.consume("test", Looking())
    if hasattr(store, "context"):
        del store.context
    assert rpc.send("call", "test", "look") is True
    assert not hasattr(store, "context")


# --- connections, pools, the rest ---------------------------------------------------------------


def test_proxy_is_not_touched_before_a_message(rpc):
    class Untouchable:
        def __getattribute__(self, name: str) -> Any:
            raise AssertionError(name)

    with rpc.impl.create_connection(*rpc.conf, True) as connection:
        connection.create_consumer("test", Untouchable(), False)
        connection.create_worker("test", Untouchable(), "pool")
        connection.consume_in_thread()


def test_connection_withdraws_its_consumers(rpc):
    connection = rpc.consume("test", Receiver())
    other = rpc.consume("test", Receiver())
    connection.close()
    connection.close()
    assert list(rpc.impl.CONSUMERS["test"]) == other.consumers
    rpc.impl.CONSUMERS.clear()
    other.close()


def test_consumers_survive_cleanup_and_go_with_a_reset(rpc):
    receiver = Receiver()
    rpc.consume("test", receiver)
    rpc.impl.cleanup()
    rpc.send("cast", "test", "echo", value=1)
    rpc.impl.reset()
    rpc.send("cast", "test", "echo", value=2)
    assert receiver.ran == [1]


def test_each_pool_gets_a_cast_and_its_members_take_turns(rpc):
    receivers = {name: Receiver() for name in ("a1", "a2", "b1", "alone")}
    connection = rpc.impl.create_connection(*rpc.conf)
    connection.create_consumer("test", rpc.proxy(receivers["alone"]))
    for name in ("a1", "a2", "b1"):
        connection.create_worker("test", rpc.proxy(receivers[name]), name[0])
    for value in (1, 2):
        rpc.send("cast", "test", "echo", value=value)
    assert {name: receiver.ran for name, receiver in receivers.items()} == {
        "a1": [1],
        "a2": [2],
        "b1": [1, 2],
        "alone": [1, 2],
    }


def test_each_pool_gets_a_notification(rpc, caplog):
    got: list[Any] = []
    connection = rpc.impl.create_connection(*rpc.conf)

    def failing(msg: Any) -> None:
        raise Refused("no")

    connection.join_consumer_pool(failing, "broken", "notifications.info", "nova")
    connection.join_consumer_pool(lambda msg: got.append(("a", msg)), "a", "notifications.info", "nova")
    connection.join_consumer_pool(lambda msg: got.append(("a", msg)), "a", "notifications.info", "nova")
    connection.join_consumer_pool(
        lambda msg: got.append(("b", msg)), "b", "notifications.info", "nova", ack_on_error=False
    )
    msg = {"event_type": "reboot", "priority": "INFO"}
    assert rpc.impl.notify(*rpc.conf, rpc.context, "notifications.info", msg) is None
    assert sorted(name for name, _ in got) == ["a", "b"] and got[0][1] == msg
    assert "Refused" in caplog.text
    connection.close()
    rpc.impl.notify(*rpc.conf, rpc.context, "notifications.info", msg)
    assert len(got) == 2


def test_either_style_at_any_time(rpc):
    rpc.consume("test", Receiver())
    msg = {"method": "echo", "args": {"value": 3}}
    assert rpc.impl.call(rpc.context, "test", msg) == 3
    assert rpc.impl.call(rpc.context, "test", msg, timeout=5) == 3
    assert rpc.impl.call(CONF, rpc.context, "test", msg, timeout=5) == 3
    assert rpc.impl.call(conf=CONF, context=rpc.context, topic="test", msg=msg) == 3


def test_message_stays_as_it_was(rpc):
    rpc.consume("test", Receiver())
    msg = {"method": "echo", "args": {"value": 3}}
    rpc.impl.call(*rpc.conf, rpc.context, "test", msg)
    assert msg == {"method": "echo", "args": {"value": 3}}


def test_one_table_of_consumers_under_both_names(rpc_of):
    rpc = rpc_of("havana")
    assert rpc.load("nova.openstack.common.rpc.impl_fake") is rpc.impl
    assert compat.nova.era() == "havana"
