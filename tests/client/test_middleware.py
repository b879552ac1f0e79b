"""Options with defaults, and middleware: what they change, in which order, and that nothing is swallowed."""

from __future__ import annotations

import gc
import re
import weakref
from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from time import monotonic
from typing import Any

import gevent
import pytest
from gevent import monkey
from gevent._hub_local import get_hub_if_exists

from rpcmq import Address, CallOptions, Client, Middleware, OutgoingRequest, Retry, Tracing, current_request
from rpcmq.client.options import Defaults
from rpcmq.errors import CallTimeout, LinkLost, NoConsumer, RemoteError, UsageError
from rpcmq.testing import eventually

DOCUMENT = Path(__file__).parents[2] / "docs" / "options-and-middleware.md"
TRACE = "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"
Connect = Callable[..., Client]
start_new_thread = monkey.get_original("_thread", "start_new_thread")


class Echo:
    def __init__(self) -> None:
        self.told: list[Any] = []

    def echo(self, ctx: Any, value: Any = None) -> Any:
        return value

    def items(self, ctx: Any) -> Any:
        yield from range(3)

    def tell(self, ctx: Any, value: Any = None) -> None:
        self.told.append(value)

    def trace(self, ctx: Any) -> str:
        request = current_request()
        assert request is not None
        return request.trace.decode()

    def attempts(self, ctx: Any) -> bool:
        return True

    def report(self, ctx: Any) -> None:
        request = current_request()
        assert request is not None
        request.progress("half")

    def fail(self, ctx: Any) -> None:
        raise LookupError("no such thing")

    def sleep(self, ctx: Any) -> None:
        gevent.sleep(30)


def body(method: str = "echo", **args: Any) -> dict[str, Any]:
    return {"method": method, "args": args}


class Recorder(Middleware):
    """Notes what passes, in ``seen``."""

    def __init__(self, name: str, seen: list[Any]) -> None:
        self.name = name
        self.seen = seen

    def __call__(self, request: OutgoingRequest, send: Any) -> Any:
        self.seen.append((self.name, request.verb))
        try:
            result = send(request)
        except BaseException as error:
            self.seen.append((self.name, type(error).__name__))
            raise
        self.seen.append((self.name, result))
        return result


class AttemptRecorder(Recorder):
    each_attempt = True


class Last(Middleware):
    """Is the wire, for tests that need none."""

    each_attempt = True

    def __init__(self, *ends: Any) -> None:
        self.ends = list(ends)
        self.requests: list[OutgoingRequest] = []

    def __call__(self, request: OutgoingRequest, send: Any) -> Any:
        self.requests.append(request)
        end = self.ends.pop(0) if self.ends else None
        if isinstance(end, BaseException):
            raise end
        return end


# --- options -------------------------------------------------------------------------------------


def test_options_cannot_be_changed_and_are_checked() -> None:
    options = CallOptions(timeout=3, retry=Retry(2))
    with pytest.raises(FrozenInstanceError):
        options.timeout = 4  # type: ignore[misc]
    for wrong, text in (
        ({"timeout": "soon"}, "timeout"),
        ({"ttl": -1}, "ttl"),
        ({"retry": "often"}, "retry must be"),
        ({"idempotent": 1}, "idempotent must be True, False or None"),
    ):
        with pytest.raises(UsageError, match=text):
            CallOptions(**wrong)
    with pytest.raises(TypeError, match="time_out"):
        CallOptions(time_out=3)  # type: ignore[call-arg]


def test_what_a_call_says_comes_first_then_its_topic_then_the_client() -> None:
    defaults = Defaults(
        CallOptions(timeout=1, idempotent=True, retry=3),
        {"compute": CallOptions(timeout=2), Address("compute", "node-7"): CallOptions(timeout=3, retry=False)},
        "",
    )
    given = CallOptions(idempotent=False)
    merged = given.or_else(defaults.of("compute"))
    assert (merged.timeout, merged.idempotent, merged.retry) == (2, False, 3)
    assert defaults.of("network").timeout == 1
    # A topic's options are its servers', however they are named.
    assert defaults.of("compute.node-1").timeout == defaults.of(Address("compute", "node-1")).timeout == 2
    assert defaults.of("compute.node-7") == defaults.of(Address("compute", "node-7"))
    assert (defaults.of("compute.node-7").timeout, defaults.of("compute.node-7").retry) == (3, False)
    assert defaults.of(Address("compute", "", "other")).timeout == 1


@pytest.mark.parametrize("wrong", [{"options": 5}, {"topic_options": {"compute": {"timeout": 1}}}])
def test_options_of_another_type_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="must be a CallOptions"):
        Client("tcp://127.0.0.1:1", **wrong)


def test_a_wrong_keyword_is_still_refused(client: Client) -> None:
    for verb in ("call", "cast", "fanout_cast"):
        with pytest.raises(TypeError, match="unexpected keyword argument 'idempotemt'"):
            getattr(client, verb)(None, "compute", body(), idempotemt=True)


def test_a_default_timeout_ends_a_call(connect: Connect, serve: Any) -> None:
    serve(Echo(), "compute")
    client = connect(topic_options={"compute": CallOptions(timeout=0.1)})
    client.connect(20)
    started = monotonic()
    with pytest.raises(CallTimeout):
        client.call(None, "compute", body("sleep"))
    assert monotonic() - started < 20


def test_a_default_timeout_is_not_longer_than_what_the_request_being_handled_has_left(
    client: Client, connect: Connect, serve: Any
) -> None:
    last = Last()
    inner = connect(options=CallOptions(timeout=1000), middleware=[last])

    class Front:
        def ask(self, ctx: Any) -> None:
            inner.call(None, "compute", body())
            inner.call(None, "compute", body(), 2000)

    serve(Front(), "front")
    client.call(None, "front", body("ask"), 7)
    assert last.requests[0].options.timeout is not None and 0 < last.requests[0].options.timeout <= 7
    assert last.requests[1].options.timeout == 2000


def test_a_mandatory_client(connect: Connect) -> None:
    client = connect(options=CallOptions(mandatory=True, confirm=True))
    with pytest.raises(NoConsumer):
        client.call(None, "nobody", body(), 10)
    with pytest.raises(NoConsumer):
        client.cast(None, "nobody", body(), timeout=10)
    with pytest.raises(NoConsumer):
        list(client.multicall(None, "nobody", body("items"), 10))
    client.cast(None, "nobody", body(), mandatory=False, timeout=10)


# --- middleware ----------------------------------------------------------------------------------


def test_all_verbs_pass_in_the_order_of_the_list(connect: Connect, serve: Any) -> None:
    seen: list[Any] = []
    echo = Echo()
    serve(echo, "compute")
    client = connect(middleware=[AttemptRecorder("c", seen), Recorder("a", seen), Recorder("b", seen)])
    assert client.call(None, "compute", body(value=5), 10) == 5
    assert seen == [("a", "call"), ("b", "call"), ("c", "call"), ("c", 5), ("b", 5), ("a", 5)]
    assert list(client.multicall(None, "compute", body("items"), 10)) == [0, 1, 2]
    client.cast(None, "compute", body("tell", value="cast"))
    assert client.fanout_cast(None, "compute", body("tell", value="fanout"), confirm=True) == 1
    assert [verb for name, verb in seen if name == "a" and isinstance(verb, str)] == [
        "call", "multicall", "cast", "fanout_cast",
    ]  # fmt: skip
    eventually(lambda: sorted(echo.told) == ["cast", "fanout"])


def test_middleware_changes_what_is_sent(connect: Connect, serve: Any) -> None:
    class Doubling(Middleware):
        def __call__(self, request: OutgoingRequest, send: Any) -> Any:
            args = {name: value * 2 for name, value in request.message["args"].items()}
            return [send(replace(request, message={**request.message, "args": args})), request.options.timeout]

    serve(Echo(), "compute")
    client = connect(middleware=[Doubling()])
    assert client.call(None, "compute", body(value=4), 9) == [8, 9]


def test_what_comes_back_is_raised_through_all_layers(connect: Connect, serve: Any) -> None:
    seen: list[Any] = []
    serve(Echo(), "compute")
    client = connect(middleware=[Recorder("a", seen), AttemptRecorder("b", seen)])
    with pytest.raises((LookupError, RemoteError)):
        client.call(None, "compute", body("fail"), 10)
    assert [each for each in seen if each[1] != "call"] == [("b", "LookupError"), ("a", "LookupError")]


@pytest.mark.parametrize("verb", ["call", "multicall", "cast", "fanout_cast"])
@pytest.mark.parametrize("each_attempt", [False, True])
def test_what_middleware_raises_is_what_the_verb_raises(connect: Connect, verb: str, each_attempt: bool) -> None:
    class Broken(Middleware):
        def __call__(self, request: OutgoingRequest, send: Any) -> Any:
            raise ZeroDivisionError("broken middleware")

    Broken.each_attempt = each_attempt
    client = connect(middleware=[Broken()], options=CallOptions(retry=3))
    with pytest.raises(ZeroDivisionError, match="broken middleware"):
        getattr(client, verb)(None, "compute", body(), timeout=10)


def test_retries_stand_between_what_is_around_a_call_and_what_is_around_an_attempt(connect: Connect) -> None:
    seen: list[Any] = []
    last = Last(LinkLost("first"), LinkLost("second"), "answer")
    client = connect(middleware=[Recorder("call", seen), AttemptRecorder("attempt", seen), last])
    assert client.call(None, "compute", body(), 10, retry=Retry(5, base=0.001), idempotent=False) == "answer"
    assert seen == [
        ("call", "call"),
        ("attempt", "call"), ("attempt", "LinkLost"),
        ("attempt", "call"), ("attempt", "LinkLost"),
        ("attempt", "call"), ("attempt", "answer"),
        ("call", "answer"),
    ]  # fmt: skip
    # An attempt is what a call is, and ends with the time of the whole.
    assert [each.options.idempotent for each in last.requests] == [True] * 3
    left = [each.options.timeout or 0.0 for each in last.requests]
    assert 10 >= left[0] > left[1] > left[2] > 0


def test_a_default_of_retries_is_switched_off_for_a_call(connect: Connect) -> None:
    last = Last(LinkLost("once"), LinkLost("again"), "answer")
    client = connect(middleware=[last], options=CallOptions(retry=Retry(5, base=0.001)))
    with pytest.raises(LinkLost, match="once"):
        client.call(None, "compute", body(), 10, retry=False)
    assert client.call(None, "compute", body(), 10) == "answer"


def test_retries_in_a_thread_without_a_gevent_hub_do_not_give_it_one(router: Any) -> None:
    seen: list[Any] = []
    client = Client(router.url, shell="threads", middleware=[Last(LinkLost("once"), "answer")])

    def run() -> None:
        answer = client.call(None, "compute", body(), 10, retry=Retry(3, base=0.001))
        seen.append((answer, get_hub_if_exists()))

    start_new_thread(run, ())
    eventually(lambda: seen == [("answer", None)])
    client.close()


def test_progress_comes_where_the_verb_was_used(connect: Connect, serve: Any) -> None:
    class Progress(Middleware):
        def __call__(self, request: OutgoingRequest, send: Any) -> Any:
            return send(replace(request, on_progress=got.append))

    got: list[Any] = []
    serve(Echo(), "compute")
    connect(middleware=[Progress()]).call(None, "compute", body("report"), 10)
    assert got == ["half"]


def test_tracing_gives_each_attempt_the_context_of_the_application(connect: Connect, serve: Any) -> None:
    serve(Echo(), "compute")
    now: list[str | None] = [TRACE]
    client = connect(middleware=[Tracing(lambda: now[0])])
    assert client.call(None, "compute", body("trace"), 10) == TRACE
    other = TRACE.replace("cd", "ef")
    assert client.call(None, "compute", body("trace"), 10, traceparent=other) == other
    now[0] = None
    assert client.call(None, "compute", body("trace"), 10) == ""


def test_only_middleware_is_taken() -> None:
    with pytest.raises(UsageError, match=r"must derive from rpcmq\.Middleware"):
        Client("tcp://127.0.0.1:1", middleware=[lambda request, send: send(request)])  # type: ignore[list-item]


def test_a_client_with_middleware_that_is_dropped_is_closed_without_the_collector_of_cycles(router: Any) -> None:
    client = Client(router.url, middleware=[Tracing(lambda: None)], options=CallOptions(timeout=5))
    client.connect()
    dropped = weakref.ref(client)
    gc.disable()
    try:
        del client
        assert dropped() is None
    finally:
        gc.enable()


# --- the document --------------------------------------------------------------------------------


def test_the_example_of_the_document_works(connect: Connect, serve: Any) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```$", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {"__name__": "metrics"}
    exec(compile(code, str(DOCUMENT), "exec"), names)
    serve(Echo(), "compute")
    metrics = names["Metrics"]()
    client = connect(middleware=[metrics])
    client.call(None, "compute", body(value=1), 10)
    with pytest.raises((LookupError, RemoteError)):
        client.call(None, "compute", body("fail"), 10)
    assert {key: count for key, (count, seconds) in metrics.table.items()} == {
        ("compute", "echo", "ok"): 1,
        ("compute", "fail", "LookupError"): 1,
    }
