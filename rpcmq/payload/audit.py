"""Audit: records the globals that each topic's pickles name, as a policy that can be enforced.

Nothing more is admitted while an audit runs: what the process refuses is refused, and only noted in a comment.
"""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rpcmq.errors import ConfigError, PayloadRefused
from rpcmq.payload.allow_list import AllowList
from rpcmq.payload.codec import Codec
from rpcmq.payload.default_allow_list import FACTORIES
from rpcmq.payload.format import Format
from rpcmq.payload.trust import Rule, read_policy, to_toml

__all__ = ["Audit"]

_MARK = "# Written by an audit."
#: Most topics, and refused names of a topic, that are recorded: peers could send any number.
_MAX_TOPICS = 10_000
_MAX_REFUSED = 100
_GLOBAL = re.compile(r"[\w.]{1,200}:[\w.]{1,200}")


class _Seen:
    """The formats and globals seen in one topic's payloads."""

    def __init__(self) -> None:
        self.formats = Format.JSON.bit
        self.names: set[str] = set()
        self.refused: set[str] = set()


class _Recording(AllowList):
    """An allow-list that records the names it is asked for."""

    __slots__ = ("_audit", "_note")

    def __init__(self, base: AllowList, audit: Audit, note: _Seen) -> None:
        super().__init__()
        self._listed, self._guarded, self._ready, self._open = base._listed, base._guarded, base._ready, base._open
        self._audit = audit
        self._note = note

    def find(self, module: str, qualname: str) -> object:
        """Like :meth:`AllowList.find`."""
        name = f"{module}:{qualname}"
        note = self._note
        try:
            found = super().find(module, qualname)
        except PayloadRefused:
            known = name in note.refused or (module, qualname) in FACTORIES
            if not known and len(note.refused) < _MAX_REFUSED and _GLOBAL.fullmatch(name):
                note.refused.add(name)
                self._audit.changed = True
            raise
        self._note_entry(self.entry_for(module, qualname))
        return found

    def exception_class(self, name: str) -> type[Exception] | None:
        """Like :meth:`AllowList.exception_class`."""
        found = super().exception_class(name)
        if found is not None:
            self._note_entry(name)
        return found

    def _note_entry(self, entry: str) -> None:
        # What is allowed without an entry comes with every list.
        if entry and entry not in self._note.names:
            self._note.names.add(entry)
            self._audit.changed = True


class Audit:
    """Records decoded payloads, and writes a policy file.

    Args:
        path: the file. What an earlier audit wrote there is kept, and several processes may share it.

    Raises:
        ConfigError: there is a file of another kind, or none can be written.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path).resolve()
        self._seen: dict[tuple[str, str], _Seen] = {}
        self.changed = True
        with self._locked():
            self._merge()

    def codec(self, exchange: str, topic: str, base: Codec) -> Codec:
        """``base`` for one topic, noting what its pickles name."""
        seen = self._of(exchange, topic)
        return base if seen is None else replace(base, allow=_Recording(base.allow, self, seen))

    def decoded(self, exchange: str, topic: str, format: int) -> None:
        """A payload of ``format`` was decoded for a topic."""
        seen = self._of(exchange, topic)
        if seen is not None and not seen.formats >> format & 1:
            seen.formats |= 1 << format
            self.changed = True

    def _of(self, exchange: str, topic: str) -> _Seen | None:
        seen = self._seen.get((exchange, topic))
        if seen is None and len(self._seen) < _MAX_TOPICS and not {"*", "#", ""} & set(topic.split(".")):
            seen = self._seen[exchange, topic] = _Seen()
            self.changed = True
        return seen

    def write(self) -> None:
        """Bring the file up to date, if there is anything new. Whoever reads it sees all of it or the one before.

        Raises:
            ConfigError: it cannot be written.
        """
        if not self.changed:
            return
        with self._locked():
            self._merge()
            self.changed = False
            descriptor, begun = tempfile.mkstemp(dir=self._path.parent, prefix=f"{self._path.name}.")
            try:
                with open(descriptor, "w", encoding="utf-8") as file:
                    file.write("\n".join(self._lines()) + "\n")
                    file.flush()
                    os.fsync(descriptor)
                os.replace(begun, self._path)
            except BaseException:
                os.unlink(begun)
                raise

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One process at a time reads and writes the file."""
        try:
            with open(f"{self._path}.lock", "w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield
        except OSError as error:
            raise ConfigError(f"{self._path}: cannot be written: {error.strerror}") from None

    def _merge(self) -> None:
        if not self._path.exists():
            return
        if not self._path.read_text(encoding="utf-8", errors="replace").startswith(_MARK):
            raise ConfigError(f"{self._path}: is no file of an audit (trust_audit); it is left as it is: name another")
        for rule in read_policy(self._path).rules:
            seen = None if "#" in rule.topics else self._of(rule.exchanges[0], rule.topics[0])
            if seen is not None:
                seen.formats |= rule.formats or 0
                seen.names.update(rule.allow)

    def _lines(self) -> Iterator[str]:
        yield f"{_MARK} Each topic with the formats that came and the globals that its pickles named."
        yield "# Look through it, then give it to the process as trust_file (RPCMQ_TRUST_FILE): it accepts only this."
        for (exchange, topic), seen in sorted(self._seen.items()):
            names = tuple(sorted(seen.names))
            yield from to_toml((Rule((topic,), (exchange,), seen.formats, names, only=True),))
            for name in sorted(seen.refused):
                yield f"# refused meanwhile, for this topic: {name}"
        yield ""
        yield "# Topics that were not seen: JSON only."
        yield from to_toml((Rule(("#",), ("*",), Format.JSON.bit),))
