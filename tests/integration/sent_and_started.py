"""A history of a mesh whose routers die: the messages that callers sent, and those that services have started."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["History", "violations"]


@dataclass
class History:
    """Messages by their keys."""

    #: Call -> what the caller was told, and the error in its place.
    answers: dict[str, str] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    #: Calls that were sent; casts whose verb has returned.
    calls: set[str] = field(default_factory=set)
    casts: set[str] = field(default_factory=set)
    #: How often each was started by any service.
    started: Counter[str] = field(default_factory=Counter)

    def read_started(self, folder: Path) -> None:
        """Read the files of the services anew."""
        self.started = Counter(key for file in folder.glob("*.started") for key in file.read_text().splitlines())


def violations(history: History) -> Iterator[str]:
    """Yield a text for each message that has failed, was lost or was started twice."""
    for key, error in sorted(history.errors.items()):
        yield f"failed: {key}: {error}"
    for key in sorted(history.calls - history.answers.keys() - history.errors.keys()):
        yield f"lost: call {key} has not ended"
    for key, answer in sorted(history.answers.items()):
        if answer != key:
            yield f"wrong: call {key} has the answer of {answer}"
        if not history.started[key]:
            yield f"wrong: call {key} was answered and never started"
    for key in sorted(history.casts - history.started.keys()):
        yield f"lost: cast {key} was never started"
    for key, count in sorted(history.started.items()):
        if count > 1:
            yield f"doubled: {key} was started {count} times"
        if key not in history.calls | history.casts:
            yield f"wrong: {key} was started, and nobody sent it"
