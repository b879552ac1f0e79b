"""A legacy program of some era in a process of its own, run piece by piece from a test."""

from __future__ import annotations

import ast
import itertools
import json
import os
import sys
import textwrap
from pathlib import Path
from typing import Any

from rpcmq.testing import eventually
from rpcmq.testing.processes import Program

_PROGRAM = Path(__file__).parent / "programs" / "interpreter.py"
_ROOT = Path(__file__).parents[3]


class _Gone(Exception):
    pass


class Raised(Exception):
    """The code raised in its process.

    Attributes:
        kinds: qualified names of the class and its bases.
        text: ``str()`` of it.
        attributes: those of its attributes that can be written as literals.
    """

    def __init__(self, kinds: list[str], text: str, attributes: dict[str, Any]) -> None:
        super().__init__(f"{kinds[0]}: {text}")
        self.kinds = kinds
        self.text = text
        self.attributes = attributes

    @property
    def kind(self) -> str:
        """Name of the class."""
        return self.kinds[0].rpartition(".")[2]


class Interpreter(Program):
    """A process in which the shim is installed.

    Args:
        router: its URL.
        era: passed to ``install``; None: what its imports tell.
        first: code that is run before anything else.
    """

    def __init__(self, router: str, era: str | None = None, first: str = "") -> None:
        command = [sys.executable, str(_PROGRAM), *([era] if era else [])]
        path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(_ROOT)]))
        super().__init__(command, {"RPCMQ_ROUTER": router, "PYTHONPATH": path}, f"{era or 'legacy'} program")
        self._numbers = itertools.count()
        self._first = self.start(first)

    def ready(self) -> Interpreter:
        """Wait until its first code has run."""
        self.result(self._first, 60.0)
        # tests/compat/mutations.py has a broken copy tried, and it had better be that one.
        if copy := os.environ.get("SHIM_UNDER_TEST"):
            assert self.run("compat.nova.__file__").startswith(copy)
        return self

    def start(self, code: str, **names: Any) -> int:
        """Have ``code`` run, with ``names`` defined (literals); returns what :meth:`result` takes."""
        number = next(self._numbers)
        told = {"number": number, "code": textwrap.dedent(code), "names": repr(names)}
        self.tell(json.dumps(told))
        return number

    def result(self, number: int, timeout: float = 20.0) -> Any:
        """The value of the last expression.

        Raises:
            Raised: the code raised.
            AssertionError: it has not ended in time.
        """
        prefix = f"= {number} "

        def look() -> str | None:
            ended = self.exit_code
            line = next((line for line in self.lines if line.startswith(prefix)), None)
            if line is None and ended is not None:
                raise _Gone
            return line

        try:
            line = eventually(look, timeout)
        except (AssertionError, _Gone):
            state = "has not answered" if self.exit_code is None else f"ended with {self.exit_code}"
            raise AssertionError(f"{self.name} {state}; it said:\n{self.said()}") from None
        assert line is not None
        kind, value = ast.literal_eval(line.removeprefix(prefix))
        if kind == "error":
            raise Raised(**value)
        return value

    def run(self, code: str, timeout: float = 20.0, **names: Any) -> Any:
        """Run ``code`` and wait. As :meth:`start` and :meth:`result`."""
        return self.result(self.start(code, **names), timeout)

    def until(self, code: str, value: Any, timeout: float = 10.0) -> None:
        """Wait until ``code`` gives ``value``.

        Raises:
            AssertionError: it has not; shows what it gave last.
        """
        seen: list[Any] = [None]

        def same() -> bool:
            seen[0] = self.run(code)
            return bool(seen[0] == value)

        try:
            eventually(same, timeout)
        except AssertionError:
            raise AssertionError(f"{code} gives {seen[0]!r}, not {value!r}; said:\n{self.said()}") from None
