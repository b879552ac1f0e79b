"""The exit status of the ``rpcmq`` command, and the mapping from errors to it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path

from rpcmq.cli.text import plain
from rpcmq.errors import (
    CallError,
    CallTimeout,
    IdentityTaken,
    LinkLost,
    NoConsumer,
    NotInstalled,
    Overloaded,
    PayloadRefused,
    RemoteError,
    RouterUnreachable,
    RpcError,
    UnknownMethod,
    UsageError,
)

__all__ = ["EXIT_CODES", "EXIT_CODES_HELP", "ExitCode", "exit_code_for", "failing", "report"]


class ExitCode(IntEnum):
    """Exit status of ``rpcmq``; ``EXIT_CODES`` says what each means."""

    OK = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    TIMEOUT = 4
    NO_CONSUMER = 5
    REMOTE_ERROR = 6
    OVERLOADED = 7
    LINK_LOST = 8
    REFUSED = 9
    NOT_INSTALLED = 10
    EXCEEDED = 11
    UNDECODED = 12
    INTERRUPTED = 130
    BROKEN_PIPE = 141
    TERMINATED = 143


EXIT_CODES = {
    ExitCode.OK: "done",
    ExitCode.FAILED: "failed for another reason",
    ExitCode.USAGE: "wrong arguments or configuration; nothing was sent",
    ExitCode.UNREACHABLE: "no router, or it refuses this process",
    ExitCode.TIMEOUT: "the call timed out",
    ExitCode.NO_CONSUMER: "nobody consumes the topic",
    ExitCode.REMOTE_ERROR: "the method raised an exception",
    ExitCode.OVERLOADED: "a bounded queue is full",
    ExitCode.LINK_LOST: "the consumer or the router went away during the call",
    ExitCode.REFUSED: "the router or service refused the request, or has no such method",
    ExitCode.NOT_INSTALLED: "an optional part is not installed; the text says what to install",
    ExitCode.EXCEEDED: "a limit that was given is exceeded (`rpcmq latency compare --fail-if`)",
    ExitCode.UNDECODED: "the answer came, but is not decoded here; the text says why",
    ExitCode.INTERRUPTED: "interrupted (SIGINT)",
    ExitCode.BROKEN_PIPE: "the reader of the output has closed it",
    ExitCode.TERMINATED: "terminated (SIGTERM)",
}

EXIT_CODES_HELP = "\b\nExit codes:\n" + "\n".join(f"  {code:<4} {text}" for code, text in EXIT_CODES.items())

_CODES: dict[type[Exception], ExitCode] = {
    UsageError: ExitCode.USAGE,
    RouterUnreachable: ExitCode.UNREACHABLE,
    IdentityTaken: ExitCode.UNREACHABLE,
    CallTimeout: ExitCode.TIMEOUT,
    NoConsumer: ExitCode.NO_CONSUMER,
    Overloaded: ExitCode.OVERLOADED,
    LinkLost: ExitCode.LINK_LOST,
    CallError: ExitCode.REFUSED,
    NotInstalled: ExitCode.NOT_INSTALLED,
    RpcError: ExitCode.FAILED,
}


def remote_cause(error: Exception) -> RemoteError | None:
    """Return the RemoteError behind ``error``: the error itself or its cause; None if the method did not raise it."""
    if isinstance(error, RemoteError):
        return error
    return error.__cause__ if isinstance(error.__cause__, RemoteError) else None


def exit_code_for(error: Exception) -> ExitCode | None:
    """Return the exit code for ``error``; None if it is not one of rpcmq's errors, but a bug."""
    if isinstance(error, UnknownMethod):
        return ExitCode.REFUSED
    if isinstance(error, RemoteError) and isinstance(error.__cause__, PayloadRefused):
        return ExitCode.UNDECODED
    if remote_cause(error) is not None:
        return ExitCode.REMOTE_ERROR
    return next((code for kind, code in _CODES.items() if isinstance(error, kind)), None)


def report(error: Exception, code: ExitCode, as_json: bool) -> None:
    """Say on standard error what went wrong: a line for a reader, or an object for a program."""
    remote = remote_cause(error)
    if not as_json:
        # The text of an unknown method says already where it is unknown.
        text = f"{type(error).__name__}: {error}" if isinstance(error, UnknownMethod) else str(remote or error)
        lines = text.splitlines() or [type(error).__name__]
        print(*(f"rpcmq: {plain(line)}" for line in lines), sep="\n", file=sys.stderr)
        return
    answer = {"error": type(error).__name__, "text": str(error), "exit_code": int(code)}
    if isinstance(error, CallError):
        answer["details"] = error.details
    if remote is not None:
        answer |= {"error": remote.exc_type, "text": remote.value, "host": remote.host, "traceback": remote.traceback}
        if len(remote.remote_hops) > 1:
            answer["hops"] = [hop._asdict() for hop in remote.remote_hops]
    print(json.dumps(answer, default=str), file=sys.stderr)


@contextmanager
def failing(place: Path | None = None) -> Iterator[None]:
    """Turn an OSError into a one-line error; one that names no file is of ``place``."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        where = error.filename or place
        raise RpcError(f"{where}: {error.strerror or error}" if where else str(error.strerror or error)) from error
