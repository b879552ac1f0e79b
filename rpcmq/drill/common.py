"""Parts shared by all processes of a drill."""

from __future__ import annotations

import json
import logging
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

import rpcmq
from rpcmq.core.process.welcome import Welcome
from rpcmq.drill.history import ANSWERS, SILENT, Recorder, What
from rpcmq.errors import CallTimeout, LinkLost, NoConsumer, Overloaded, RemoteError

__all__ = ["INNER", "MISSPELT", "TOPIC", "Options", "listen", "outcome_of", "say", "text_of", "write_links"]

TOPIC = "drill"
#: Of the calls that handlers make.
INNER = "drill.inner"
#: Topics that nobody consumes.
MISSPELT = ("dirll", "dril", "drills")
#: Phrase in a process's log -> the router state it reports.
_SAID = {"has been silent for": SILENT, "answers again": ANSWERS}
_OUTCOMES: dict[type[BaseException], str] = {
    CallTimeout: "timeout",
    NoConsumer: "no_consumer",
    Overloaded: "overloaded",
    LinkLost: "link_lost",
    RemoteError: "remote_error",
}


@dataclass(frozen=True)
class Options:
    """Options of one process.

    Attributes:
        name: in the history; another for each life.
        place: its identity at the router, the same for each life.
        history: file of its history.
        count: messages that a caller sends; 0: until it is ended.
        files: most files that it may open; 0: as many as it finds.
        slow_seconds: that a subscriber takes for each event.
        settle_seconds: how long the last casts may take to be taken by the router, and to end.
    """

    router: str
    name: str
    place: str
    history: str
    seed: int
    topology: dict[str, Any]
    count: int = 0
    files: int = 0
    slow_seconds: float = 0.0
    settle_seconds: float = 20.0

    def to_json(self) -> str:
        """As an argument of the command line."""
        return json.dumps(asdict(self))


def outcome_of(error: BaseException) -> str:
    """The name of the outcome that ``error`` stands for."""
    # An exception that was rebuilt is a remote one, too.
    if isinstance(error.__cause__, RemoteError):
        return "remote_error"
    return next((name for kind, name in _OUTCOMES.items() if isinstance(error, kind)), type(error).__name__)


def text_of(id: str, size: int) -> str:
    """The text of the message ``id``, which is another for each."""
    return (f"{id} " * (size // (len(id) + 1) + 1))[:size]


def write_links(client: rpcmq.Client, recorder: Recorder) -> None:
    """Record each session with the router."""
    uplink = client.process.uplink
    on_welcome = uplink.on_welcome

    def welcomed(now: float, welcome: Welcome) -> None:
        away = {"away": round(time.monotonic() - uplink.lost_at, 6)} if uplink.lost_at else {}
        resumed = uplink.router is not None and uplink.router.resumed
        recorder.write(What.LINKED, resumed=resumed, link=uplink.origin.hex(), **away)
        on_welcome(now, welcome)

    uplink.on_welcome = welcomed


class _Ear(logging.Handler):
    """A log handler that records a process's statements about its router."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(logging.WARNING)
        self._recorder = recorder

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        for part, what in _SAID.items():
            if part in text:
                self._recorder.write(What.SAYS, what)


def listen(recorder: Recorder) -> None:
    """Record this process's log lines about its router."""
    logger = logging.getLogger("rpcmq.client")
    logger.setLevel(logging.WARNING)
    logger.addHandler(_Ear(recorder))


def say(text: str) -> None:
    """Print a line for the process that started this one."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
