"""The files of a log that an engine reads: found again, and asked again, when they change meanwhile."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

from rpcmq.latency.analysis.account import Account
from rpcmq.latency.jobs.engine import TRIES, Changed
from rpcmq.latency.jobs.gate import inspect
from rpcmq.latency.selection import Selection, check_dimensions

__all__ = ["OpenLog"]

Result = TypeVar("Result")


class OpenLog(ABC):
    """The good files of a selection of a log; which they are is looked at when something is asked.

    Attributes:
        account: of the log.
        files: paths of those that passed the gate, below the log's directory.

    Raises:
        UsageError: no such dimension.
    """

    #: Exceptions that the engine raises for a file that it cannot read, among other things.
    errors: tuple[type[Exception], ...]

    def __init__(self, selection: Selection) -> None:
        check_dimensions(selection.where)
        self.selection = selection
        self.account = Account()
        self.files: list[str] = []
        self._unreadable: dict[str, str] = {}
        self._is_stale = True

    def look(self) -> None:
        """Find out which files there are now.

        Raises:
            UsageError: there is no such directory.
            ManifestDamaged: the manifest is not one.
            OSError: the directory cannot be read.
        """
        chosen = self.selection
        passed = inspect(chosen.path, chosen.since, chosen.until, self._unreadable)
        self.account, self.files = passed.account, [file.path for file in passed.files]
        # The file check has verified their number.
        self.account.counted = sum(file.rows for file in passed.files)

    @abstractmethod
    def blamed(self, error: Exception) -> dict[str, str]:
        """Return the files that ``error`` is about, and what it says of each."""

    def persistently(self, ask: Callable[[], Result]) -> Result:
        """Return the result of ``ask``, asked again if files change meanwhile.

        Raises:
            Changed: they go faster than they can be read.
            UsageError, ManifestDamaged, OSError: see ``look``.
        """
        patiently = Retrying(retry=retry_if_exception_type(Changed), stop=stop_after_attempt(TRIES), reraise=True)
        answer: Result = patiently(self._asked, ask)
        return answer

    def _asked(self, ask: Callable[[], Result]) -> Result:
        with self._watched():
            if self._is_stale:
                self.look()
                self._is_stale = False
            return ask()

    @contextmanager
    def _watched(self) -> Iterator[None]:
        try:
            yield
        except self.errors as error:
            bad = self.blamed(error)
            if not bad:
                raise
            for path, why in bad.items():
                # What is gone the manifest does not name any more. What is still there, and passed the gate, the engine
                # will not read next time either.
                if (self.selection.path / path).exists():
                    self._unreadable[path] = why
            self._is_stale = True
            raise Changed(f"{', '.join(bad)}: removed or damaged while it was read") from error
