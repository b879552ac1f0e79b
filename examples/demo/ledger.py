"""Each service writes down what it begins, in a file that outlives ``kill -9``: so the demo can tell what ran twice."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from examples.demo.context import RequestContext

#: The variable that names the folder; without it nothing is written.
FOLDER = "DEMO_LEDGERS"
_SUFFIX = ".ledger"


class Ledger:
    """The record of all that one process has begun.

    Args:
        name: of the process.
    """

    def __init__(self, name: str) -> None:
        folder = os.environ.get(FOLDER)
        path = Path(folder) / f"{name}{_SUFFIX}" if folder else Path(os.devnull)
        self._file = path.open("ab", buffering=0)

    def begun(self, context: RequestContext, method: str) -> None:
        """Write down that a request begins; a user asks for a method once in one context."""
        self._file.write(f"{method} {context.request_id}\n".encode())


def read_ledgers(folder: Path) -> dict[str, Counter[str]]:
    """Return how often each process has begun each ``METHOD REQUEST``."""
    files = sorted(folder.glob(f"*{_SUFFIX}"))
    return {file.name.removesuffix(_SUFFIX): Counter(file.read_text().splitlines()) for file in files}
