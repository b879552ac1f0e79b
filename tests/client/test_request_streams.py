"""Calls with a stream as argument: over gevent and over plain threads."""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import gevent
import pytest

import rpcmq
from rpcmq.client.middleware import OutgoingRequest
from rpcmq.client.options import CallOptions
from rpcmq.client.stream_argument import CHUNK_BYTES
from rpcmq.errors import (
    CallerFailed,
    CallerGone,
    CallTimeout,
    NoConsumer,
    Overloaded,
    PayloadError,
    RemoteError,
    RequestStreamError,
    UsageError,
)
from rpcmq.testing import eventually
from rpcmq.transport.mac_files import new_mac_key
from rpcmq.wire import HEADER_BYTES, Flag, Kind, without_flag
from tests.from_threads import each_blocking_shell as client_shell

__all__ = ["client_shell"]


class Files:
    """What is served."""

    def __init__(self) -> None:
        self.ended: list[BaseException | str] = []

    def sizes(self, ctx: Any, body: Iterable[bytes]) -> list[int]:
        return [len(chunk) for chunk in body]

    def total(self, ctx: Any, body: Iterable[bytes]) -> int:
        return sum(map(len, body))

    def items(self, ctx: Any, body: Iterable[Any], before: str = "", after: str = "") -> tuple[str, list[Any], str]:
        return before, list(body), after

    def first(self, ctx: Any, body: Iterator[Any]) -> Any:
        return next(body)

    def refuse(self, ctx: Any, body: Iterator[Any]) -> None:
        raise LookupError(next(body))

    def ignore(self, ctx: Any, body: Any) -> str:
        return "ignored"

    def stop(self, ctx: Any, body: rpcmq.RequestStream) -> tuple[Any, list[Any]]:
        first = next(body)
        body.close()
        return first, list(body)

    def double(self, ctx: Any, body: Iterable[int]) -> Iterator[int]:
        for item in body:
            yield item * 2

    def watch(self, ctx: Any, body: Iterable[Any]) -> None:
        try:
            for _ in body:
                pass
            self.ended.append("end")
        except RequestStreamError as error:
            self.ended.append(error)
            raise


class Source:
    """A generator that says how far it was read, and whether it was closed."""

    def __init__(self, items: Iterable[Any], waits: float = 0.0) -> None:
        self.read = 0
        self.closed = False
        self._items = items
        self._waits = waits

    def __call__(self) -> Iterator[Any]:
        try:
            for item in self._items:
                self.read += 1
                yield item
                gevent.sleep(self._waits)
        finally:
            self.closed = True


def message(method: str, body: Any, **args: Any) -> dict[str, Any]:
    return {"method": method, "args": {"body": body, **args}}


@pytest.fixture
def files(serve: Any) -> Files:
    endpoint = Files()
    serve(endpoint, "files")
    return endpoint


def test_a_file_comes_in_chunks(client: Any, files: Files):
    with tempfile.TemporaryFile() as file:
        file.write(os.urandom(2 * CHUNK_BYTES + 5))
        file.seek(0)
        assert client.call(None, "files", message("sizes", file)) == [CHUNK_BYTES, CHUNK_BYTES, 5]
        assert not file.closed
        assert client.call(None, "files", message("sizes", file)) == []


def test_a_file_is_read_from_where_it_is_in_chunks_of_the_size_asked_for(client: Any, files: Files):
    file = io.BytesIO(b"0123456789")
    file.seek(3)
    assert client.call(None, "files", message("items", rpcmq.stream(file, chunk_bytes=4)))[1] == [b"3456", b"789"]


@pytest.mark.parametrize(
    "items", [[], [1, "two", None, {"three": [3]}], [b"", b"x", b"y" * 40_000], [bytearray(b"a"), memoryview(b"b")]]
)
def test_items_come_as_they_were_sent_beside_other_arguments(client: Any, files: Files, items: list[Any]):
    wanted = [bytes(item) if isinstance(item, (bytearray, memoryview)) else item for item in items]
    for body in (rpcmq.stream(items), (item for item in items)):
        found = client.call(None, "files", message("items", body, before="b", after="a"))
        assert found == ("b", wanted, "a")


def test_far_more_than_the_window_comes_whole(client: Any, files: Files):
    chunk = os.urandom(100_000)
    assert client.call(None, "files", message("total", (chunk for _ in range(300))), timeout=60) == 30_000_000


def test_the_iterable_is_not_begun_before_the_first_item_is_asked_for(client: Any, files: Files):
    source = Source(range(10))
    assert client.call(None, "files", message("ignore", source())) == "ignored"
    assert source.read == 0


def test_a_handler_that_ends_early_closes_the_iterable_and_answers(client: Any, files: Files):
    source = Source(range(100_000))
    assert client.call(None, "files", message("first", source())) == 0
    eventually(lambda: source.closed)
    assert source.read < 1000


def test_a_handler_that_raises_early_closes_the_iterable_and_its_exception_is_raised(client: Any, files: Files):
    source = Source(range(100_000))
    with pytest.raises(LookupError, match="0"):
        client.call(None, "files", message("refuse", source()))
    eventually(lambda: source.closed)


def test_a_handler_that_wants_no_more_goes_on(client: Any, files: Files):
    source = Source(range(100_000))
    assert client.call(None, "files", message("stop", source())) == (0, [])
    eventually(lambda: source.closed)
    assert source.read < 1000


class OwnError(Exception):
    """Of the caller."""


def test_an_exception_of_the_iterable_is_the_callers_own_and_a_typed_one_for_the_handler(client: Any, files: Files):
    def broken() -> Iterator[int]:
        yield 1
        raise OwnError("no more")

    with pytest.raises(OwnError, match="no more") as raised:
        client.call(None, "files", message("watch", broken()))
    assert any(frame.name == "broken" for frame in raised.traceback)
    eventually(lambda: len(files.ended) == 1)
    (error,) = files.ended
    assert isinstance(error, CallerFailed) and "OwnError: no more" in str(error)
    assert isinstance(error.__cause__, RemoteError)


def test_an_item_that_cannot_be_sent_fails_as_the_iterable_would(client: Any, files: Files):
    with pytest.raises(PayloadError):
        client.call(None, "files", message("watch", (each for each in [1, (i for i in "")])))
    eventually(lambda: len(files.ended) == 1)
    assert isinstance(files.ended[0], CallerFailed)


def test_an_item_larger_than_a_message_may_be_fails_and_says_the_limit(client: Any, files: Files):
    most = client.process.uplink.max_message_bytes
    with pytest.raises(PayloadError, match=f"takes {most}"):
        client.call(None, "files", message("watch", (each for each in [bytes(most + 1)])), timeout=60)


def test_a_stream_that_is_too_slow_times_out_and_says_so(client: Any, files: Files):
    source = Source([1, 2], waits=2.0)
    with pytest.raises(CallTimeout, match="the stream 'body' of the caller has given no item for"):
        client.call(None, "files", message("watch", source()), timeout=0.5)
    eventually(lambda: len(files.ended) == 1 and source.closed)
    assert isinstance(files.ended[0], CallerGone)


def test_each_item_puts_the_timeout_off(client: Any, files: Files):
    source = Source(range(8), waits=0.5)
    assert client.call(None, "files", message("items", source()), timeout=3.5)[1] == list(range(8))


@pytest.mark.parametrize("end", ["closed", "garbage"])
def test_a_client_that_is_closed_ends_the_stream(connect: Any, files: Files, end: str):
    source, other = Source(range(1_000_000)), connect()
    stream = other.multicall(None, "files", message("watch", source()))
    eventually(lambda: source.read > 50)
    if end == "closed":
        other.close()
    else:
        del stream
    eventually(lambda: len(files.ended) == 1 and source.closed)
    assert isinstance(files.ended[0], CallerGone)


def test_both_directions_at_once(client: Any, files: Files):
    source = Source(range(500))
    assert list(client.multicall(None, "files", message("double", source()))) == [n * 2 for n in range(500)]
    eventually(lambda: source.closed)


def test_a_conversation_each_item_of_which_answers_the_one_before(client: Any, files: Files):
    asked = [1]

    def questions() -> Iterator[int]:
        while len(asked) < 20:
            if asked:
                yield asked[-1]
            seen = len(asked)
            while len(asked) == seen:
                gevent.sleep(0.001)

    for answer in client.multicall(None, "files", message("double", questions()), timeout=30):
        asked.append(answer)
        if len(asked) >= 20:
            break
    assert asked == [2**n for n in range(20)]


def test_a_reply_stream_that_is_closed_closes_the_request_stream(client: Any, files: Files):
    source = Source(range(1_000_000))
    items = client.multicall(None, "files", message("double", source()))
    assert next(items) == 0
    items.close()
    eventually(lambda: source.closed)


def test_a_call_of_a_method_that_yields_says_to_use_multicall(client: Any, files: Files):
    with pytest.raises(RemoteError, match="ask for it with multicall"):
        client.call(None, "files", message("double", (i for i in range(3))))


def test_a_multicall_of_a_plain_method_has_its_result_as_one_item(client: Any, files: Files):
    assert list(client.multicall(None, "files", message("total", (b"x" for _ in range(3))))) == [3]


def test_many_at_once_hold_up_nobody_else(client: Any, files: Files):
    from tests.from_threads import in_thread

    def upload(n: int) -> Any:
        return client.call(None, "files", message("total", (bytes(n) for _ in range(50))), timeout=60)

    def run(n: int) -> Any:
        return gevent.spawn(in_thread, upload, n) if client.shell.outside is not None else gevent.spawn(upload, n)

    uploads = [run(n) for n in range(30)]
    assert client.call(None, "files", message("ignore", 1), timeout=60) == "ignored"
    assert [each.get(timeout=60) for each in uploads] == [50 * n for n in range(30)]
    eventually(lambda: client.process.calls.streams.open == 0)


def test_the_verbs_that_cannot_send_a_stream_say_so(client: Any, files: Files):
    for cast in (client.cast, client.fanout_cast):
        for confirm in (False, True):
            with pytest.raises(UsageError, match="'body' is a stream, which a cast cannot send"):
                cast(None, "files", message("ignore", (i for i in range(3))), confirm=confirm)


def test_two_streams_are_refused(client: Any, files: Files):
    with pytest.raises(UsageError, match="'body', 'before' are streams"):
        client.call(None, "files", message("items", (i for i in "x"), before=rpcmq.stream([])))


def test_a_stream_within_a_value_is_refused(client: Any, files: Files):
    values: list[Any] = [[rpcmq.stream([])], {"x": (i for i in range(3))}]
    for value in values:
        with pytest.raises(PayloadError):
            client.call(None, "files", message("ignore", value))


def test_text_and_what_is_no_stream_are_refused():
    with tempfile.TemporaryFile("w+") as text, pytest.raises(UsageError, match="mode 'rb'"):
        rpcmq.stream(text)
    values: list[Any] = ["text", b"bytes", {}, 5, None]
    for value in values:
        with pytest.raises(UsageError):
            rpcmq.stream(value)
    for size in (0, -1, True, 1.5, 1 << 30):
        with pytest.raises(UsageError, match="chunk_bytes"):
            rpcmq.stream([], chunk_bytes=size)  # type: ignore[arg-type]


def test_a_file_of_text_says_how_to_open_it(client: Any, files: Files):
    with tempfile.TemporaryFile("w+") as text, pytest.raises(UsageError, match="mode 'rb'"):
        client.call(None, "files", message("total", text))


def test_without_a_consumer_the_iterable_is_never_begun(client: Any):
    source = Source(range(3))
    with pytest.raises(NoConsumer):
        client.call(None, "nobody", message("total", source()), mandatory=True, timeout=20)
    assert source.read == 0


def test_a_stream_is_not_sent_again_by_a_retry(client: Any, files: Files):
    source = Source(range(3))
    assert client.call(None, "files", message("items", source()), retry=3)[1] == [0, 1, 2]
    attempts: list[Any] = []

    def send(request: Any) -> None:
        attempts.append(request)
        raise Overloaded("full")

    request = OutgoingRequest("call", None, "files", message("items", source()), CallOptions(retry=3))
    with pytest.raises(Overloaded):
        client.pipeline.run(request, lambda timeout: 10.0, send)
    assert len(attempts) == 1


def test_a_direct_call_goes_by_the_router(client: Any, serve: Any):
    endpoint = Files()
    serve(endpoint, "near", direct=True)
    assert client.call(None, "near", message("total", (b"xy" for _ in range(3))), direct=True) == 6


def test_progress_is_reported_while_the_stream_is_read(client: Any, serve: Any):
    class Slow:
        def read(self, ctx: Any, body: Iterable[int]) -> int:
            request = rpcmq.current_request()
            assert request is not None
            for item in body:
                request.progress(item)
            return 7

    serve(Slow(), "slow")
    seen: list[int] = []
    assert client.call(None, "slow", message("read", (i for i in range(3))), on_progress=seen.append) == 7
    assert seen == [0, 1, 2]


def test_a_stream_that_came_with_a_request_is_passed_on(client: Any, serve: Any, files: Files):
    class Front:
        def total(self, ctx: Any, body: rpcmq.RequestStream) -> int:
            return int(client.call(ctx, "files", message("total", rpcmq.stream(body))))

    serve(Front(), "front")
    assert client.call(None, "front", message("total", (bytes(1000) for _ in range(100)))) == 100_000


def test_a_handler_may_read_its_stream_in_other_threads_and_not_after_its_end(client: Any, serve: Any):
    kept: list[rpcmq.RequestStream] = []

    class Keeper:
        def keep(self, ctx: Any, body: rpcmq.RequestStream) -> str:
            kept.append(body)
            assert "'body' of 'keep'" in repr(body)
            return "kept"

    serve(Keeper(), "keeper")
    assert client.call(None, "keeper", message("keep", (i for i in range(3)))) == "kept"
    with pytest.raises(CallerGone, match="its call has been answered"):
        next(kept[0])


def test_a_streams_deadline_moves_with_it_for_what_the_handler_calls(client: Any, serve: Any):
    left: list[float] = []

    class Patient:
        def read(self, ctx: Any, body: Iterable[int]) -> None:
            for _ in body:
                request = rpcmq.current_request()
                assert request is not None and request.remaining is not None
                left.append(request.remaining)

    serve(Patient(), "patient")
    client.call(None, "patient", message("read", Source(range(8), waits=0.5)()), timeout=3.5)
    assert min(left) > 0.5


# --- signed ----------------------------------------------------------------------------------------


@pytest.fixture
def signed(tmp_path: Path) -> dict[str, str]:
    """Settings of processes that sign, and take nothing that is not signed."""
    new_mac_key(tmp_path / "mac.toml", "ours")
    (tmp_path / "trust.toml").write_text('[[topics]]\ntopics = ["#"]\nrequire = true\n')
    return {"trust_file": str(tmp_path / "trust.toml"), "mac_file": str(tmp_path / "mac.toml")}


def test_items_of_a_signed_request_are_signed_both_ways(connect: Any, serve: Any, signed: dict[str, str]):
    serve(Files(), "files", client=connect(**signed))
    client = connect(**signed)
    items = [b"bytes", bytes(100_000), {"a": 1}, "text"]
    assert client.call(None, "files", message("items", rpcmq.stream(items)))[1] == items
    assert list(client.multicall(None, "files", message("double", (n for n in range(100))))) == [
        2 * n for n in range(100)
    ]


class Broken(OSError):
    """Of the caller."""


def test_the_failure_of_a_signed_stream_is_told(connect: Any, serve: Any, signed: dict[str, str]):
    files = Files()
    serve(files, "files", client=connect(**signed))

    def broken() -> Iterator[int]:
        yield 1
        raise Broken("disk")

    with pytest.raises(Broken):
        connect(**signed).call(None, "files", message("watch", broken()))
    eventually(lambda: len(files.ended) == 1)
    assert isinstance(files.ended[0], CallerFailed) and "disk" in str(files.ended[0])


@pytest.mark.parametrize("what", ["changed", "left out", "repeated", "not signed"])
def test_changes_that_a_router_makes_to_a_signed_stream_are_found(
    connect: Any, serve: Any, router: Any, signed: dict[str, str], what: str
):
    files = Files()
    serve(files, "files", client=connect(**signed))
    client = connect("sender", **signed)
    client.connect()
    link = next(each for each in router._embedded.engine.links if each.identity == "sender")
    link.handlers, pass_on, seen = link.handlers[:], link.handlers[Kind.REQUEST_ITEM], []

    def hostile(now: float, link: Any, message: bytes) -> None:
        seen.append(message)
        if len(seen) != 3 or what == "repeated":
            pass_on(now, link, message)
        if len(seen) == 3 and what == "changed":
            pass_on(
                now, link, message[:HEADER_BYTES] + bytes((message[HEADER_BYTES] ^ 1,)) + message[HEADER_BYTES + 1 :]
            )
        elif len(seen) == 3 and what == "repeated":
            pass_on(now, link, message)
        elif len(seen) == 3 and what == "not signed":
            pass_on(now, link, without_flag(message, Flag.SEALED))

    link.handlers[Kind.REQUEST_ITEM] = hostile
    with pytest.raises(RemoteError, match=r"its signature with the key 'ours' is wrong|it is not signed"):
        client.call(None, "files", message("items", (b"%d" % n for n in range(10))))


def test_a_stream_is_not_sent_to_several_consumers(client: Any, files: Files):
    for options in ({"first_of": 2}, {"hedge_after": 0.1}):
        with pytest.raises(UsageError, match="'body' is a stream, which one consumer reads"):
            client.call(None, "files", message("items", (i for i in range(3))), idempotent=True, **options)
