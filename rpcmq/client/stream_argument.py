"""The argument of a call that is sent as a stream: which one it is, and its items."""

from __future__ import annotations

import io
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Mapping
from types import AsyncGeneratorType, GeneratorType
from typing import Any, BinaryIO, NoReturn

from rpcmq.errors import UsageError
from rpcmq.payload.bounded_text import short_repr

__all__ = ["CHUNK_BYTES", "StreamArgument", "refuse_stream", "stream", "stream_in", "without_stream"]

#: Bytes of each item that is made of a file.
CHUNK_BYTES = 256 << 10
_MOST_CHUNK_BYTES = 16 << 20
#: Sent as streams without :func:`stream`. A :class:`StreamArgument` is what that returns.
_FILES = (io.RawIOBase, io.BufferedIOBase)


class StreamArgument:
    """A value that is sent as a stream; made by :func:`rpcmq.stream`."""

    __slots__ = ("chunk_bytes", "source")

    def __init__(self, source: Any, chunk_bytes: int) -> None:
        self.source = source
        self.chunk_bytes = chunk_bytes

    def __repr__(self) -> str:
        return f"rpcmq.stream({short_repr(self.source)})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a stream can only be an argument of a call or multicall, not a part of a value")

    @property
    def is_async(self) -> bool:
        """Whether its items are awaited."""
        return hasattr(self.source, "__aiter__")

    def items(self) -> Iterator[Any]:
        """The items: of a file its chunks, of an iterable what it gives.

        Raises:
            UsageError: while iterating: what is read of a file is no bytes.
        """
        read = _reader(self.source)
        return iter(self.source) if read is None else _chunks(read, self.chunk_bytes)


def stream(source: Iterable[Any] | AsyncIterable[Any] | BinaryIO, *, chunk_bytes: int = CHUNK_BYTES) -> StreamArgument:
    """Have an argument of a call sent item by item, while the method runs: a request stream.

    Generators and files open for reading bytes need not be wrapped. Only a call or a multicall takes a stream, and only
    as one of its top-level arguments. The method gets an iterator.

    Args:
        source: an iterable, or a file that is open for reading bytes, or (in :mod:`rpcmq.aio`) an async iterable. A
            file is read from where it is, and is not closed. Iterators and generators are closed when the call ends.
        chunk_bytes: largest part of a file that is sent as one item, 1 to 16,777,216.

    Raises:
        UsageError: it is none of these, or text.
    """
    if type(chunk_bytes) is not int or not 0 < chunk_bytes <= _MOST_CHUNK_BYTES:
        text = f"chunk_bytes must be 1 to {_MOST_CHUNK_BYTES} bytes, not {short_repr(chunk_bytes)}"
        raise UsageError(text)
    if isinstance(source, StreamArgument):
        return source
    if isinstance(source, io.TextIOBase):
        raise UsageError(f"a stream is read from a file of bytes, opened with mode 'rb', not from {short_repr(source)}")
    if isinstance(source, (str, bytes, bytearray, memoryview, Mapping)):
        raise UsageError(
            f"a stream is made of an iterable or a file, not of a {type(source).__name__}: pass it as it is, "
            "or its parts in a list"
        )
    if _reader(source) is None and not hasattr(source, "__iter__") and not hasattr(source, "__aiter__"):
        raise UsageError(
            f"a stream is made of an iterable or a file that is open for reading, not {short_repr(source)}"
        )
    return StreamArgument(source, chunk_bytes)


def _reader(source: Any) -> Callable[[int], Any] | None:
    """The function that reads at most so many bytes of a file; None: it is no file."""
    if not callable(getattr(source, "read", None)):
        return None
    # What is there already, rather than to wait until the chunk is full.
    read: Callable[[int], Any] = getattr(source, "read1", None) or source.read
    return read


def _chunks(read: Callable[[int], Any], chunk_bytes: int) -> Iterator[bytes]:
    while chunk := read(chunk_bytes):
        if type(chunk) is not bytes:
            if isinstance(chunk, str):
                raise UsageError("the file of a stream gives text; open it with mode 'rb'")
            chunk = bytes(chunk)
        yield chunk
    if chunk is None:
        raise UsageError("the file of a stream has nothing to read at present: it is in non-blocking mode")


def _as_stream(value: Any) -> StreamArgument | None:
    if type(value) is StreamArgument:
        return value
    if isinstance(value, (GeneratorType, AsyncGeneratorType, *_FILES)):
        return StreamArgument(value, CHUNK_BYTES)
    if isinstance(value, io.TextIOBase):
        return stream(value)  # says why not
    # A file by another name, such as one of tempfile.
    is_file = callable(getattr(value, "read", None)) and callable(getattr(value, "readable", None))
    return StreamArgument(value, CHUNK_BYTES) if is_file else None


def stream_in(msg: Any) -> tuple[str, StreamArgument] | None:
    """The name and value of the argument in ``msg`` that is a stream; None: there is none.

    Raises:
        UsageError: there are several.
    """
    args = msg.get("args") if isinstance(msg, Mapping) else None
    if not isinstance(args, Mapping):
        return None
    found = [(name, each) for name, value in args.items() if (each := _as_stream(value)) is not None]
    if len(found) > 1:
        names = ", ".join(repr(name) for name, _ in found)
        raise UsageError(f"a call takes one stream, and {names} are streams: send one of them as a value")
    return found[0] if found else None


def without_stream(msg: Mapping[str, Any], name: str) -> dict[str, Any]:
    """``msg`` without the argument ``name``."""
    return {**msg, "args": {other: value for other, value in msg["args"].items() if other != name}}


def refuse_stream(msg: Any, verb: str, is_used: bool = True) -> None:
    """Refuse ``msg`` if one of its arguments is a stream, and ``verb`` is used.

    Raises:
        UsageError: it is.
    """
    found = stream_in(msg) if is_used else None
    if found is not None:
        raise UsageError(
            f"the argument {found[0]!r} is a stream, which a {verb} cannot send: there is one reader of a stream, and "
            "its sender waits for it; use call or multicall"
        )
