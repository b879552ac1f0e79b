from __future__ import annotations

import argparse
from typing import Any

import gevent
import pytest

import rpcmq
from rpcmq.client import Service
from rpcmq.errors import (
    CallError,
    IdentityTaken,
    PayloadError,
    RemoteError,
    RouterUnreachable,
    UnknownMethod,
    UsageError,
)
from rpcmq.payload import ExceptionRegistry
from rpcmq.testing import eventually
from tests.client.endpoints import Compute, message, topic


class InstanceNotFound(Exception):
    def __init__(self, instance_id: int) -> None:
        super().__init__(instance_id)
        self.instance_id = instance_id

    def __str__(self) -> str:
        return f"no instance {self.instance_id}"


class Awkward(Exception):
    """Neither pickle nor repr() works."""

    def __init__(self) -> None:
        super().__init__(lambda: 0)

    def __reduce__(self) -> Any:
        raise RuntimeError("cannot be pickled")

    def __repr__(self) -> str:
        raise RuntimeError("cannot be shown")


# --- what methods raise -------------------------------------------------------------------------


def test_a_builtin_exception_is_raised_as_itself(client, serve):
    service = serve(Compute())
    with pytest.raises(ValueError, match="x") as raised:
        client.call(None, "compute", message("fail"))
    assert raised.value.args == ("x", 7)
    remote = raised.value.__cause__
    assert isinstance(remote, RemoteError)
    assert (remote.exc_type, remote.host, remote.remote_args) == ("ValueError", service.client.identity, ("x", 7))
    assert 'raise error if isinstance(error, BaseException) else ValueError("x", 7)' in remote.traceback


class Failing:
    def lose(self, ctx: Any) -> None:
        raise InstanceNotFound(17)

    def be_awkward(self, ctx: Any) -> None:
        raise Awkward

    def return_a_function(self, ctx: Any) -> Any:
        return {"instances": [1, {"name": lambda: 0}]}

    def yield_a_function(self, ctx: Any) -> Any:
        yield 1
        yield lambda: 0

    def time_out(self, ctx: Any) -> None:
        with gevent.Timeout(0.001):
            gevent.sleep(5)

    def be_killed(self, ctx: Any) -> None:
        raise gevent.GreenletExit


def test_an_exception_that_is_not_registered_is_a_remote_error(client, serve):
    service = serve(Failing())
    with pytest.raises(RemoteError, match="InstanceNotFound: no instance 17") as raised:
        client.call(None, "compute", message("lose"))
    error = raised.value
    assert error.exc_type.endswith("test_service.InstanceNotFound")
    assert error.value == "no instance 17"
    assert error.remote_args == (17,)
    assert error.host == service.client.identity
    assert "raise InstanceNotFound(17)" in error.traceback


def test_a_registered_exception_is_raised_as_itself(connect, serve):
    serve(Failing())
    client = connect(exceptions=ExceptionRegistry([InstanceNotFound]))
    with pytest.raises(InstanceNotFound) as raised:
        client.call(None, "compute", message("lose"))
    assert raised.value.instance_id == 17
    assert isinstance(raised.value.__cause__, RemoteError)


def test_an_exception_that_can_be_neither_pickled_nor_shown_is_reported(client, serve):
    serve(Failing())
    with pytest.raises(RemoteError, match="Awkward"):
        client.call(None, "compute", message("be_awkward"))


def test_a_result_that_cannot_be_encoded_names_its_path(client, serve, caplog):
    serve(Failing())
    with pytest.raises(RemoteError, match=r"instances.*1.*name") as raised:
        client.call(None, "compute", message("return_a_function"))
    # No PayloadError: nothing is wrong with what the caller has sent, and the method ran.
    assert raised.value.exc_type == "rpcmq.errors.PayloadError"
    text = "call return_a_function to compute.node-7 failed: PayloadError: the result cannot be encoded: "
    eventually(lambda: text in caplog.text)
    items = client.multicall(None, "compute", message("yield_a_function"))
    assert next(items) == 1
    with pytest.raises(RemoteError, match="PayloadError"):
        next(items)


def test_arguments_that_cannot_be_encoded_name_their_path_and_nothing_is_sent(router, client, serve):
    serve(Compute())
    client.connect()
    with pytest.raises(PayloadError, match=r"args.*value.*1.*name"):
        client.call(None, "compute", message("echo", value=[1, {"name": lambda: 0}]))
    with pytest.raises(PayloadError, match="context"):
        client.cast({"user": lambda: 0}, "compute", message("note"))
    assert router.query("methods")["methods"] == []


@pytest.mark.parametrize(("method", "text"), [("time_out", "Timeout: 0.001 second"), ("be_killed", "GreenletExit")])
def test_what_is_no_ordinary_exception_is_reported_and_stays_in_its_greenlet(client, serve, capfd, method, text):
    serve(Failing())
    with pytest.raises(RemoteError, match=text):
        client.call(None, "compute", message(method))
    with pytest.raises(RemoteError):
        client.call(None, "compute", message("lose"))
    assert "Traceback" not in capfd.readouterr().err


class BadText(Exception):
    def __str__(self) -> str:
        raise SystemExit("no text")


#: Exceptions that a handler may raise, and the texts that its caller reads.
ENDINGS = [
    (SystemExit(3), "SystemExit: 3"),
    (KeyboardInterrupt("mine"), "KeyboardInterrupt: mine"),
    (gevent.GreenletExit("g"), "GreenletExit: g"),
    (gevent.Timeout(7), "Timeout: 7 seconds"),
    (GeneratorExit("x"), "GeneratorExit: x"),
    (StopIteration("s"), "StopIteration: s"),
    (BaseException("b"), "BaseException: b"),
    (BadText(), "BadText, which cannot be described: that raised SystemExit"),
]


class Ending:
    """Raises the n-th of ENDINGS, in one way or another."""

    def raise_(self, ctx: Any, n: int) -> None:
        raise ENDINGS[n][0]

    def raise_later(self, ctx: Any, n: int) -> None:
        gevent.sleep(0.001)
        raise ENDINGS[n][0]

    def raise_after_an_item(self, ctx: Any, n: int) -> Any:
        yield "item"
        raise ENDINGS[n][0]

    def parse(self, ctx: Any, arguments: list[str]) -> None:
        argparse.ArgumentParser("tool").parse_args(arguments)


@pytest.mark.parametrize("method", ["raise_", "raise_later", "raise_after_an_item"])
@pytest.mark.parametrize("n", range(len(ENDINGS)), ids=lambda n: type(ENDINGS[n][0]).__name__)
def test_whatever_a_handler_raises_ends_that_request_only(client, serve, capfd, method, n):
    service = serve(Ending())
    compute = Compute()
    serve(compute, topic="beside", client=service.client)
    beside = gevent.spawn(client.call, None, "beside", message("hold"), timeout=10)
    assert compute.started.wait(20)
    ask = (lambda *args: list(client.multicall(*args))) if method == "raise_after_an_item" else client.call
    with pytest.raises((RemoteError, RuntimeError)) as raised:
        ask(None, "compute", message(method, n=n), 10)
    told = raised.value.__cause__ if isinstance(raised.value, RuntimeError) else raised.value
    # What a generator lets out of StopIteration is Python's affair.
    expected = "StopIteration" if method == "raise_after_an_item" and n == 5 else ENDINGS[n][1]
    assert expected in str(told)
    client.cast(None, "compute", message(method, n=n), confirm=True)
    with pytest.raises((RemoteError, RuntimeError)):
        list(client.multicall(None, "compute", message(method, n=n), timeout=10))
    compute.go_on.set()
    assert beside.get(timeout=20) == "held"
    assert client.call(None, "compute", {"method": "rpcmq.ping"}, timeout=10)
    eventually(lambda: topic_row_in_flight(client) == 0)
    assert "Traceback" not in capfd.readouterr().err


def topic_row_in_flight(client: rpcmq.Client) -> int:
    rows = client.query("topics")["topics"]
    return sum(row["in_flight"] for row in rows if row["topic"] == "compute")


def test_an_argparse_error_in_a_handler_is_its_callers(client, serve, caplog):
    serve(Ending())
    with pytest.raises(RemoteError, match="SystemExit: 2"):
        client.call(None, "compute", message("parse", arguments=["--unknown"]))
    text = (
        f"to compute.node-7 failed: SystemExit: 2 (from {client.identity}); that ends this request and not the service"
    )
    eventually(lambda: text in caplog.text)
    assert client.call(None, "compute", message("parse", arguments=[])) is None


def test_what_a_progress_callback_raises_ends_that_call_only(connect, serve):
    compute = Compute()
    service = serve(compute)
    client = connect()

    class Reporting:
        def report(self, ctx: Any) -> None:
            request = rpcmq.current_request()
            assert request is not None
            request.progress(1)
            eventually(lambda: request.cancelled)

    serve(Reporting(), topic="reports", client=service.client)
    beside = gevent.spawn(client.call, None, "compute", message("hold"), timeout=10)
    assert compute.started.wait(20)

    def give_up(value: Any) -> None:
        raise SystemExit(value)

    with pytest.raises(SystemExit):
        client.call(None, "reports", message("report"), timeout=10, on_progress=give_up)
    compute.go_on.set()
    assert beside.get(timeout=20) == "held"


def test_a_timeout_that_a_handler_forgot_hurts_no_later_request(client, serve, capfd):
    class Forgetful:
        def forget(self, ctx: Any) -> None:
            gevent.Timeout(0.03).start()

        def add(self, ctx: Any, a: int) -> int:
            return a

    serve(Forgetful())
    for _ in range(5):
        client.call(None, "compute", message("forget"))
    gevent.sleep(0.06)
    greenlets = [gevent.spawn(client.call, None, "compute", message("add", a=n), timeout=20) for n in range(10)]
    gevent.joinall(greenlets, 20)
    assert [g.value for g in greenlets] == list(range(10))


@pytest.mark.own_hub
def test_a_payload_that_is_no_request_is_refused_by_the_service(client, serve):
    compute = Compute()
    serve(compute)
    codec = client._codec
    for payload in (5, None, [1], "keepalive"):
        with pytest.raises(rpcmq.errors.PayloadRefused, match="must be a mapping with context and args"):
            raw_call(client, *codec.encode(payload))
    with pytest.raises((TypeError, RemoteError)):
        raw_call(client, *codec.encode({"args": {1: 2}}))
    with pytest.raises((ValueError, RemoteError)):
        raw_call(client, *codec.encode({"args": {}, "keepalive": "soon"}))
    with pytest.raises(rpcmq.errors.PayloadRefused):
        raw_call(client, 2, b"\x80\x05nonsense")
    assert client.call(None, "compute", message("add", a=1)) == 1


def raw_call(client: rpcmq.Client, form: int, payload: bytes) -> Any:
    """A call whose payload is not what the client library would make."""
    from time import monotonic

    from rpcmq.client.results import result_of
    from rpcmq.core.process.call import Call
    from rpcmq.wire import Address, Kind

    client.connect()
    call = Call("compute", 0, 5.0)
    process = client.process
    process.calls.start(
        monotonic(), call, Kind.REQUEST, payload, format=form, address=Address("compute").encode(), method=b"echo"
    )
    process.connection.schedule()
    process.wait(call)
    return result_of(client.process.payloads, call)


# --- life ---------------------------------------------------------------------------------------


def test_concurrency_is_what_the_router_gives_at_once(router, client, serve):
    compute = Compute()
    serve(compute, concurrency=3)
    calls = [gevent.spawn(client.call, None, "compute", message("hold"), timeout=10) for _ in range(10)]
    eventually(lambda: (topic(router)["in_flight"], topic(router)["queued"]) == (3, 7))
    compute.go_on.set()
    gevent.joinall(calls, 20)
    assert [c.value for c in calls] == ["held"] * 10


@pytest.mark.parametrize(
    ("wrong", "names"),
    [
        ({"concurrency": 0}, "concurrency"),
        ({"concurrency": 65536}, "concurrency"),
        ({"context": int}, "from_dict"),
        ({"topic": ""}, "topic is empty"),
        ({"topic": 5}, "topic must be a str"),
        ({"host": "x" * 256}, "server 'x"),
        ({"exchange": "a\n"}, "control character"),
        ({"nonsense": 1}, "nonsense: unknown"),
    ],
)
def test_wrong_arguments_are_named(router, wrong, names):
    with pytest.raises(UsageError, match=names):
        Service(**({"topic": "compute", "endpoint": Compute()} | wrong))


def test_start_without_a_router_can_be_tried_again(free_port):
    service = Service("compute", Compute(), host="n", router=f"tcp://127.0.0.1:{free_port}")
    with pytest.raises(RouterUnreachable):
        service.start(timeout=0.1)
    with rpcmq.testing.router(router_listen=f"tcp://127.0.0.1:{free_port}"):
        service.start()
        assert service.stop()


@pytest.mark.own_hub
def test_a_registration_that_the_router_refuses(client, serve):
    serve(Compute())
    other = Service("compute.node-7", Compute(), host="x", client=client)
    with pytest.raises(CallError, match="own topic of server"):
        other.start()
    with pytest.raises(CallError, match="own topic of server"):
        other.start()
    assert other.stop()


def test_an_identity_that_is_taken(serve, monkeypatch):
    monkeypatch.setattr("rpcmq.core.process.dialer.INSIST_SECONDS", 0.1)
    serve(Compute(), identity="node-7")
    with pytest.raises(IdentityTaken):
        serve(Compute(), identity="node-7")


def test_starting_twice(serve):
    service = serve(Compute())
    with pytest.raises(UsageError, match="started already"):
        service.start()


def test_stop_of_a_service_that_was_never_started(router):
    service = Service("compute", Compute(), router=router.url)
    assert service.stop() is True
    assert service.stop() is True


def test_stop_waits_for_what_runs_and_takes_nothing_more(router, client, serve):
    compute = Compute()
    service = serve(compute)
    running = gevent.spawn(client.call, None, "compute", message("hold"), timeout=10)
    assert compute.started.wait(20)
    stopping = gevent.spawn(service.stop, 10)
    eventually(lambda: topic(router)["consumers"] == [])
    queued = gevent.spawn(client.call, None, "compute", message("add", a=1), timeout=10)
    eventually(lambda: topic(router)["queued"] == 1)
    assert not stopping.ready()
    compute.go_on.set()
    assert running.get(timeout=20) == "held"
    assert stopping.get(timeout=20) is True
    serve(Compute(), host="other")
    assert queued.get(timeout=20) == 1


def test_stop_is_bounded(client, serve):
    compute = Compute()
    service = serve(compute)
    running = gevent.spawn(client.call, None, "compute", message("hold"), timeout=10)
    assert compute.started.wait(20)
    assert service.stop(0.05) is False
    with pytest.raises(rpcmq.errors.LinkLost):
        running.get(timeout=20)
    compute.go_on.set()


def test_stop_of_one_of_two_services_on_a_connection(client, serve):
    first, second = serve(Compute(), "first", client=client), serve(Compute(), "second", client=client)
    assert first.stop()
    with pytest.raises(rpcmq.errors.NoConsumer):
        client.call(None, "first", message("add", a=1), mandatory=True)
    assert client.call(None, "second", message("add", a=1)) == 1
    third = serve(Compute(), "third", client=client)
    assert client.call(None, "third", message("add", a=1)) == 1
    assert second.stop() and third.stop()


def test_wait_returns_when_the_service_has_stopped(serve):
    service = serve(Compute())
    waiting = gevent.spawn(service.wait)
    gevent.sleep(0)
    service.stop()
    waiting.get(timeout=20)


def test_handlers_of_one_process_can_call_each_other(client, serve):
    class Chain:
        def down(self, ctx: Any, n: int) -> int:
            if n == 0:
                return 0
            below: int = client.call(ctx, "chain", message("down", n=n - 1))
            return 1 + below

    serve(Chain(), "chain", client=client)
    assert client.call(None, "chain", message("down", n=30)) == 30


def test_a_method_is_looked_up_by_its_whole_name(client, serve):
    serve(Compute())
    with pytest.raises(UnknownMethod):
        client.call(None, "compute", message("go_on.set"))
