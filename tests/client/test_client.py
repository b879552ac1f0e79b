from __future__ import annotations

from collections import UserDict
from time import monotonic
from types import MappingProxyType, SimpleNamespace
from typing import Any

import gevent
import pytest

import rpcmq
from rpcmq.client import Client
from rpcmq.errors import (
    CallError,
    CallTimeout,
    ConfigError,
    IdentityTaken,
    LinkLost,
    NoConsumer,
    Overloaded,
    PayloadError,
    RemoteError,
    RouterUnreachable,
    UnknownMethod,
    UsageError,
)
from rpcmq.testing import eventually
from tests.client.endpoints import Compute, message, topic
from tests.from_threads import each_shell

client_shell = each_shell


class Context:
    def __init__(self, user: str) -> None:
        self.user = user

    def to_dict(self) -> dict[str, Any]:
        return {"user": self.user}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Context:
        return cls(values["user"])


# --- call ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "topic",
    ["compute", "compute.node-7", rpcmq.Address("compute"), rpcmq.Address("compute", "node-7")],
)
def test_a_call_returns_what_the_method_returned(client, serve, topic):
    serve(Compute())
    assert client.call(None, topic, message("add", a=1, b=2)) == 3


def test_a_call_without_args(client, serve):
    serve(Compute())
    assert client.call(None, "compute", {"method": "echo"}) is None
    assert client.call(None, "compute", {"method": "echo", "args": None}) is None


def test_args_may_be_any_mapping(client, serve):
    serve(Compute())
    for args in (MappingProxyType({"a": 1}), UserDict(a=1)):
        assert client.call(None, "compute", {"method": "add", "args": args}) == 1


def test_an_exchange_is_a_namespace(connect, serve):
    serve(Compute(), exchange="east")
    east, west = connect(exchange="east"), connect(exchange="west")
    assert east.call(None, "compute", message("add", a=1)) == 1
    assert west.call(None, rpcmq.Address("compute", "", "east"), message("add", a=2)) == 2
    with pytest.raises(NoConsumer):
        west.call(None, "compute", message("add", a=1), mandatory=True)


def test_a_server_that_has_a_dot_in_its_name(client, serve):
    serve(Compute(), host="node-7.example.org")
    assert client.call(None, "compute.node-7.example.org", message("add", a=1)) == 1


@pytest.mark.parametrize(
    ("context", "arrives"),
    [
        (None, None),
        ({}, {}),
        ({"user": "u"}, {"user": "u"}),
        (MappingProxyType({"user": "u"}), {"user": "u"}),
        (Context("u"), {"user": "u"}),
    ],
)
def test_a_context_arrives_as_a_dict(client, serve, context, arrives):
    compute = Compute()
    serve(compute)
    client.call(context, "compute", message("echo"))
    client.cast(context, "compute", message("note"), confirm=True)
    eventually(lambda: compute.contexts == [arrives, arrives])


def test_a_context_is_made_an_object_of_the_class_that_the_service_names(client, serve):
    compute = Compute()
    serve(compute, context=Context)
    client.call(Context("u"), "compute", message("echo"))
    client.call({"user": "v"}, "compute", message("echo"))
    client.call(None, "compute", message("echo"))
    assert [type(c) for c in compute.contexts] == [Context, Context, type(None)]
    assert [c.user for c in compute.contexts[:2]] == ["u", "v"]


def test_concurrent_calls_get_their_own_answers(client, serve):
    serve(Compute())
    greenlets = [gevent.spawn(client.call, None, "compute", message("echo", value=n)) for n in range(500)]
    gevent.joinall(greenlets, 20)
    assert [g.value for g in greenlets] == list(range(500))


def test_a_large_message_both_ways(client, serve):
    serve(Compute())
    value = bytes(range(256)) * 20_000
    assert client.call(None, "compute", message("echo", value=value)) == value


def test_mandatory_fails_at_once_where_nobody_consumes(client):
    with pytest.raises(NoConsumer, match=r"no consumer on 'nobody' \(never seen\)") as raised:
        client.call(None, "nobody", message("add"), timeout=30, mandatory=True)
    assert raised.value.details["topic"] == "nobody"


def test_a_mandatory_multicall_fails_at_once_where_nobody_consumes(client, serve):
    with pytest.raises(NoConsumer, match=r"no consumer on 'nobody' \(never seen\)") as raised:
        list(client.multicall(None, "nobody", message("count", n=3), timeout=30, mandatory=True))
    assert raised.value.details["topic"] == "nobody"
    serve(Compute())
    assert list(client.multicall(None, "compute", message("count", n=3), timeout=30, mandatory=True)) == [0, 1, 2]


def test_a_timeout_says_that_the_call_was_queued(client):
    client.connect(20)
    with pytest.raises(CallTimeout, match=r"queued \d\.\d s: no consumer on 'nobody'") as raised:
        client.call(None, "nobody", message("add"), timeout=1.0)
    assert raised.value.details["state"] == "queued"
    assert isinstance(raised.value, TimeoutError)


def test_a_timeout_says_that_the_call_was_running(client, serve):
    compute = Compute()
    service = serve(compute)
    client.connect(20)
    with pytest.raises(CallTimeout, match="running") as raised:
        client.call(None, "compute", message("hold"), timeout=0.5)
    assert raised.value.details["state"] == "running"
    assert raised.value.details["server"] == service.client.identity
    compute.go_on.set()


def test_a_late_reply_is_counted_and_harms_nobody(router, client, serve):
    compute = Compute()
    serve(compute)
    client.connect(20)
    with pytest.raises(CallTimeout):
        client.call(None, "compute", message("hold"), timeout=0.5)
    compute.go_on.set()
    eventually(lambda: router.query("summary")["counters"].get("late replies") == 1)
    assert client.call(None, "compute", message("add", a=1)) == 1
    assert router.query("summary")["calls_in_flight"] == 0


def test_a_handler_that_never_returns_takes_one_place_only(client, serve):
    compute = Compute()
    serve(compute, concurrency=2)
    client.connect(20)
    with pytest.raises(CallTimeout):
        client.call(None, "compute", message("hold"), timeout=0.5)
    assert [client.call(None, "compute", message("add", a=n)) for n in range(20)] == list(range(20))
    compute.go_on.set()


def test_a_full_queue_refuses_a_call_at_once():
    with (
        rpcmq.testing.router(queue_max_messages=2) as router,
        Client(router.url) as client,
        rpcmq.Service("compute", compute := Compute(), router=router.url, concurrency=1) as service,
    ):
        greenlets = [gevent.spawn(client.call, None, "compute", message("hold"), timeout=10) for _ in range(3)]
        eventually(lambda: topic(router)["queued"] == 2)
        with pytest.raises(Overloaded, match=r"'compute' is full: 2 messages"):
            client.call(None, "compute", message("add", a=1), timeout=10)
        compute.go_on.set()
        gevent.joinall(greenlets, 20)
        assert [g.value for g in greenlets] == ["held"] * 3
        assert service.stop() is True


def test_a_consumer_that_leaves_ends_its_calls_with_link_lost(client, serve):
    compute = Compute()
    service = serve(compute)
    call = gevent.spawn(client.call, None, "compute", message("hold"), timeout=10)
    assert compute.started.wait(20)
    service.client.close()
    with pytest.raises(LinkLost, match="went away") as raised:
        call.get(timeout=20)
    assert raised.value.details["server"] == service.client.identity
    compute.go_on.set()


def test_an_idempotent_call_goes_to_another_consumer(client, serve):
    first, second = Compute(), Compute()
    leaving = serve(first, host="a")
    call = gevent.spawn(client.call, None, "compute", message("hold"), timeout=10, idempotent=True)
    assert first.started.wait(20)
    serve(second, host="b")
    second.go_on.set()
    leaving.client.close()
    assert call.get(timeout=20) == "held"
    assert second.ended == ["hold"]
    first.go_on.set()


def test_a_trace_context_is_passed_on_by_nested_calls(client, connect, serve):
    traces = []
    nested = connect()

    class Front:
        def ask(self, ctx: Any) -> None:
            nested.call(None, "back", message("trace"))

    class Back:
        def trace(self, ctx: Any) -> None:
            request = rpcmq.current_request()
            assert request is not None
            traces.append(request.trace)

    serve(Front(), "front")
    serve(Back(), "back")
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    client.call(None, "front", message("ask"), traceparent=trace)
    assert traces == [trace.encode()]


@pytest.mark.parametrize("verb", ["cast", "fanout_cast"])
def test_casts_take_a_trace_context(client, serve, verb):
    traces: list[bytes] = []

    class Traced:
        def note(self, ctx: Any) -> None:
            request = rpcmq.current_request()
            assert request is not None
            traces.append(request.trace)

    serve(Traced())
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    getattr(client, verb)(None, "compute", message("note"), traceparent=trace)
    eventually(lambda: traces == [trace.encode()])


# --- cast ---------------------------------------------------------------------------------------


@pytest.mark.in_order
def test_casts_arrive_in_order(client, serve):
    compute = Compute()
    serve(compute)
    for n in range(1000):
        client.cast(None, "compute", message("note", value=n))
    eventually(lambda: len(compute.seen) == 1000)
    assert compute.seen == list(range(1000))


def test_a_cast_waits_for_its_consumer(client, serve):
    client.cast(None, "compute.node-7", message("note", value=1), confirm=True)
    compute = Compute()
    serve(compute)
    eventually(lambda: compute.seen == [1])


def test_a_confirmed_cast_outlives_the_timeout_of_its_confirmation(client, serve):
    client.connect(20)
    client.cast(None, "compute", message("note", value=1), confirm=True, timeout=0.05)
    gevent.sleep(0.2)
    compute = Compute()
    serve(compute)
    eventually(lambda: compute.seen == [1])


@pytest.mark.parametrize("confirm", [True, False])
def test_a_cast_is_dropped_when_its_ttl_has_passed(router, client, serve, confirm):
    client.cast(None, "compute", message("note", value=1), ttl=0.02, confirm=confirm)
    eventually(lambda: topic(router)["dropped"] == {"expired": 1})
    compute = Compute()
    serve(compute)
    client.call(None, "compute", message("add", a=1))
    assert compute.seen == []


def test_a_confirmed_mandatory_cast_says_that_nobody_consumes(client):
    with pytest.raises(NoConsumer):
        client.cast(None, "nobody", message("note"), mandatory=True, confirm=True)


def test_a_mandatory_cast_that_is_refused_is_logged(client, caplog):
    client.cast(None, "nobody", message("note"), mandatory=True)
    eventually(lambda: "cast not delivered: no consumer on 'nobody'" in caplog.text)


def test_a_cast_whose_method_fails_is_logged_by_the_service_and_settled(router, client, serve, caplog):
    serve(Compute())
    client.cast(None, "compute", message("fail"), confirm=True)
    eventually(lambda: "cast fail to compute.node-7 failed" in caplog.text)
    eventually(lambda: topic(router)["in_flight"] == 0)
    assert router.query("methods")["methods"][0]["outcomes"] == {"remote_error": 1}


def test_fanout_reaches_all_consumers(client, serve):
    nodes = [Compute() for _ in range(3)]
    for n, node in enumerate(nodes):
        serve(node, host=f"node-{n}")
    assert client.fanout_cast(None, "compute", message("note", value=1), confirm=True) == 3
    assert client.fanout_cast(None, "compute", message("note", value=2)) is None
    eventually(lambda: [sorted(node.seen) for node in nodes] == [[1, 2]] * 3)  # handlers of threads begin in any order


def test_fanout_without_consumers(client):
    assert client.fanout_cast(None, "nobody", message("note"), confirm=True) == 0


# --- describe, query ----------------------------------------------------------------------------


def test_describe(client, serve):
    serve(Compute())
    described = client.describe("compute")
    assert (described["topic"], described["server"], described["endpoint"]) == ("compute", "node-7", "Compute")
    methods = {method["name"]: method for method in described["methods"]}
    assert methods["add"] == {
        "name": "add",
        "signature": "(ctx: 'Any', a: 'int', b: 'int' = 0) -> 'int'",
        "doc": "Add two numbers.\n\nThe second may be left out.",
    }
    assert not {"_private", "attribute", "Nested"} & methods.keys()


def test_describe_of_a_topic_that_nobody_consumes_ends_at_once(client):
    with pytest.raises(NoConsumer, match="no consumer on 'nobody'"):
        client.describe("nobody", 60)


@pytest.mark.parametrize("view", ["overview", "summary", "processes", "topics", "calls", "methods"])
def test_query(router, client, view):
    client.connect()
    answer = client.query(view)
    assert answer.keys() == router.query(view).keys()


def test_query_of_an_unknown_view(client):
    with pytest.raises(CallError, match="view 'nonsense' is unknown"):
        client.query("nonsense")


def test_the_router_shows_who_is_connected(router, connect):
    connect("api-1").connect()
    (process,) = router.query("processes")["processes"]
    assert (process["identity"], process["state"]) == ("api-1", "answering")


# --- wrong arguments ----------------------------------------------------------------------------

GOOD: dict[str, Any] = {"ctx": None, "topic": "compute", "msg": {"method": "add", "args": {"a": 1}}}


@pytest.mark.parametrize("verb", ["call", "cast", "fanout_cast", "multicall"])
@pytest.mark.parametrize(
    ("wrong", "names"),
    [
        ({"msg": None}, "msg must be"),
        ({"msg": "add"}, "msg must be"),
        ({"msg": ["add"]}, "msg must be"),
        ({"msg": {"args": {}}}, "msg must be"),
        ({"msg": {"method": None}}, "method must be"),
        ({"msg": {"method": b"add"}}, "method must be"),
        ({"msg": {"method": ""}}, "method must be"),
        ({"msg": {"method": "x" * 256}}, "method must be"),
        ({"msg": {"method": "add", "args": [1]}}, "args must be"),
        ({"msg": {"method": "add", "args": []}}, "args must be"),
        ({"msg": {"method": "add", "args": 0}}, "args must be"),
        ({"msg": {"method": "add", "args": "a"}}, "args must be"),
        ({"topic": ""}, "topic is empty"),
        ({"topic": None}, "topic must be a str"),
        ({"topic": 5}, "topic must be a str"),
        ({"topic": b"compute"}, "topic must be a str"),
        ({"topic": ["compute"]}, "topic must be a str"),
        ({"topic": ("compute", "node-7")}, "topic must be a str"),
        ({"topic": "x" * 256}, "topic 'x"),
        ({"topic": "a\nb"}, "control character"),
        ({"topic": "\ud800"}, "UTF-8"),
        ({"ctx": 5}, "ctx must be"),
        ({"ctx": object()}, "ctx must be"),
        ({"ctx": Context}, "ctx must be"),
        ({"ctx": SimpleNamespace(to_dict=lambda: 5)}, "to_dict"),
        ({"timeout": 0}, "timeout must be"),
        ({"timeout": -1}, "timeout must be"),
        ({"timeout": float("nan")}, "timeout must be"),
        ({"timeout": float("inf")}, "timeout must be"),
        ({"timeout": "5"}, "timeout must be"),
        ({"timeout": True}, "timeout must be"),
    ],
)
def test_wrong_arguments_are_named_and_nothing_is_sent(router, client, serve, verb, wrong, names):
    compute = Compute()
    serve(compute)
    with pytest.raises(UsageError, match=names):
        getattr(client, verb)(**(GOOD | wrong))
    assert client.process.calls.open == {}
    assert router.query("methods")["methods"] == []


@pytest.mark.parametrize(
    ("verb", "wrong", "names"),
    [
        ("call", {"sign_of_life": 0}, "sign_of_life must be"),
        ("call", {"sign_of_life": "1"}, "sign_of_life must be"),
        ("call", {"retry": -1}, "retry must be"),
        ("call", {"retry": "yes"}, "retry must be"),
        ("call", {"traceparent": "nonsense"}, "traceparent"),
        ("call", {"traceparent": b"00-bytes"}, "traceparent b'00-bytes' is not of the form"),
        ("cast", {"traceparent": 5}, "traceparent 5 is not of the form"),
        ("cast", {"ttl": 0}, "ttl must be"),
        ("cast", {"ttl": -1}, "ttl must be"),
        ("cast", {"ttl": 0, "confirm": True}, "ttl must be"),
        ("cast", {"ttl": "1", "confirm": True}, "ttl must be"),
        ("cast", {"timeout": -1, "confirm": True}, "timeout must be"),
    ],
)
def test_wrong_options_are_named(client, serve, verb, wrong, names):
    serve(Compute())
    with pytest.raises(UsageError, match=names):
        getattr(client, verb)(**(GOOD | wrong))


@pytest.mark.parametrize(
    ("wrong", "names"),
    [
        ({"event_type": "", "payload": 1}, "topic"),
        ({"event_type": "a..b", "payload": 1}, "topic"),
        ({"event_type": "a", "payload": 1, "priority": "LOUD"}, "priority 'LOUD' is unknown"),
        ({"event_type": "a", "payload": 1, "priority": None}, "priority None is unknown"),
        ({"event_type": "a", "payload": 1, "ctx": 5}, "ctx must be"),
    ],
)
def test_wrong_notifications_are_named(client, wrong, names):
    with pytest.raises(UsageError, match=names):
        client.notify(**({"ctx": None} | wrong))


def test_a_call_to_a_method_that_is_not_there(client, serve):
    serve(Compute())
    for name in ("nothing", "_private", "__init__", "attribute", "Nested", "rpcmq.nothing"):
        with pytest.raises(UnknownMethod, match=f"'compute' has no public method '{name}'"):
            client.call(None, "compute", message(name))


def test_a_call_with_arguments_that_the_method_does_not_take(client, serve):
    serve(Compute())
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'a'"):
        client.call(None, "compute", message("add"))
    with pytest.raises(TypeError, match="unexpected keyword argument 'c'"):
        client.call(None, "compute", message("add", a=1, c=1))


def test_a_message_too_large_for_the_router_is_refused_by_its_sender():
    with (
        rpcmq.testing.router(message_max_bytes="64KiB") as router,
        Client(router.url) as client,
        rpcmq.Service("compute", Compute(), router=router.url),
    ):
        for verb in (client.call, client.cast):
            with pytest.raises(PayloadError, match="the router takes 65536"):
                verb(None, "compute", message("echo", value=bytes(100_000)))
        with pytest.raises(RemoteError, match=r"PayloadError: .* the router takes 65536"):
            client.call(None, "compute", message("large"))
        assert client.call(None, "compute", message("add", a=1)) == 1


# --- life ---------------------------------------------------------------------------------------


def test_settings_that_are_unknown_or_wrong_are_refused():
    with pytest.raises(ConfigError, match="tiemout: unknown; did you mean timeout"):
        Client(tiemout=5)  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="cast_window = 0: expected an integer >= 1"):
        Client(cast_window=0)
    with pytest.raises(ConfigError, match="router = 'nonsense'"):
        Client("nonsense")


def test_the_environment_names_the_router_and_more(router, monkeypatch):
    monkeypatch.setenv("RPCMQ_IDENTITY", "from-environment")
    with Client() as client:
        client.connect()
        assert client.config.router == (router.url,)
        assert client.identity == "from-environment"


def test_no_router_is_one_clear_error(free_port):
    with Client(f"tcp://127.0.0.1:{free_port}", connect_timeout=0.2) as client:
        for verb in (client.call, client.cast, client.multicall):
            with pytest.raises(RouterUnreachable, match=rf"127.0.0.1:{free_port} not reachable within 0.2 s"):
                verb(None, "compute", message("add"))
        with pytest.raises(RouterUnreachable, match="nothing listens there"):
            client.query()
        assert issubclass(RouterUnreachable, ConnectionError)


def test_a_router_that_comes_later_is_found(free_port):
    with Client(f"tcp://127.0.0.1:{free_port}", connect_timeout=30) as client:
        waiting = gevent.spawn(client.connect)
        eventually(lambda: "nothing listens" in client.process.connection.condition, 20)
        assert not waiting.ready()
        with rpcmq.testing.router(router_listen=f"tcp://127.0.0.1:{free_port}"):
            waiting.get(timeout=20)


def test_the_wait_for_a_router_counts_once_against_the_timeout_of_a_call(free_port):
    with Client(f"tcp://127.0.0.1:{free_port}", connect_timeout=30) as client:
        began = monotonic()
        calling = gevent.spawn(client.call, None, "compute", message("add"), timeout=60)
        eventually(lambda: "nothing listens" in client.process.connection.condition, 20)
        with rpcmq.testing.router(router_listen=f"tcp://127.0.0.1:{free_port}"):
            eventually(lambda: bool(client.process.calls.open), 20)
            (call,) = client.process.calls.open.values()
            assert call.timeout is not None
            assert began + 60 <= call.sent_at + call.timeout < began + 61
            calling.kill()


def test_an_identity_that_is_taken(connect, monkeypatch):
    monkeypatch.setattr("rpcmq.core.process.dialer.INSIST_SECONDS", 0.1)
    first, second = connect("api-1"), connect("api-1")
    first.connect()
    with pytest.raises(IdentityTaken, match="'api-1' is taken by a live process"):
        second.connect()
    for verb in (second.call, second.cast):
        with pytest.raises(IdentityTaken):
            verb(None, "compute", message("add"))
    assert first.query("summary")["links"] == 1


def test_an_identity_is_free_again_when_its_process_has_left(connect):
    first = connect("api-1")
    first.connect()
    first.close()
    connect("api-1").connect(timeout=5)


def test_a_closed_client_refuses_every_verb(client, serve):
    serve(Compute())
    client.call(None, "compute", message("add", a=1))
    client.close()
    client.close()
    for verb in (client.call, client.cast, client.fanout_cast, client.multicall):
        with pytest.raises(UsageError, match="this client is closed"):
            verb(None, "compute", message("add", a=1))
    with pytest.raises(UsageError, match="this client is closed"):
        client.cast(None, "compute", message("note"), confirm=True)
    with pytest.raises(UsageError, match="this client is closed"):
        client.query()
    with pytest.raises(UsageError, match="this client is closed"):
        client.subscribe("#", print)
    with pytest.raises(UsageError, match="this client is closed"):
        client.publish(None, "a", 1)
    with pytest.raises(UsageError, match="this client is closed"):
        client.connect()


def test_closing_an_unused_client(connect):
    connect().close()


def test_closing_ends_what_waits(client, serve):
    compute = Compute()
    serve(compute)
    items = client.multicall(None, "compute", message("until_cancelled"))
    stream = gevent.spawn(list, items)
    assert compute.started.wait(20)
    compute.started.clear()
    calls = [gevent.spawn(client.call, None, "compute", message("hold"), timeout=30) for _ in range(5)]
    assert compute.started.wait(20)
    client.close()
    waiting: Any
    for waiting in (*calls, stream):
        with pytest.raises(LinkLost, match="client was closed"):
            waiting.get(timeout=20)
    compute.go_on.set()
    eventually(lambda: "cancelled" in compute.ended)


def test_closing_while_the_router_is_away_says_what_is_lost(caplog):
    with rpcmq.testing.router() as router:
        client = Client(router.url, cast_window=1)
        client.connect()
    client.cast(None, "compute", message("note"))
    waiting = gevent.spawn(client.cast, None, "compute", message("note"), timeout=30)
    gevent.sleep(0)
    client.close()
    with pytest.raises(UsageError, match="closed"):
        waiting.get(timeout=20)
    assert "acknowledged 1 cast" in caplog.text


@pytest.mark.in_order
def test_casts_sent_just_before_the_close_arrive(connect, serve):
    compute = Compute()
    serve(compute)
    for n in range(20):
        client = connect()
        for m in range(50):
            client.cast(None, "compute", message("note", value=(n, m)))
        client.close()
    eventually(lambda: len(compute.seen) == 1000)
    assert compute.seen == [(n, m) for n in range(20) for m in range(50)]


@pytest.mark.own_hub
def test_the_hub_may_cast_but_not_call(client, serve):
    compute = Compute()
    serve(compute)
    client.connect()
    outcomes: list[Any] = []

    def in_hub() -> None:
        client.cast(None, "compute", message("note", value=1))
        for verb in (client.call, client.multicall):
            try:
                verb(None, "compute", message("add", a=1))
            except UsageError as error:
                outcomes.append(str(error))

    gevent.get_hub().loop.run_callback(in_hub)
    eventually(lambda: compute.seen == [1])
    assert len(outcomes) == 2 and all("hub cannot wait" in text for text in outcomes)
