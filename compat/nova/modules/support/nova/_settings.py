"""The part of ``nova.test`` that sets flags, and puts them back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


class Settings:
    """Settings of a configuration object, saved to be restored."""

    def __init__(self, conf: Any) -> None:
        self.conf = conf
        self._entries = list(entries_of(conf))
        self._flags = dict(conf.FlagValuesDict()) if not self._entries and hasattr(conf, "FlagValuesDict") else {}

    def restore(self) -> None:
        """Set everything as it was; an option that was registered since loses what overrides it."""
        known = {id(entry): old for entry, old in self._entries}
        for entry, _ in entries_of(self.conf):
            old = known.get(id(entry), _NONE)
            if not isinstance(entry, dict):
                entry.override = type(entry).override if old is _NONE else old
            elif old is _NONE:
                entry.pop("override", None)
            else:
                entry["override"] = old
        forget_cached(self.conf)
        now = self.conf.FlagValuesDict() if self._flags else {}
        for name, old in self._flags.items():
            if now.get(name) is not old:
                setattr(self.conf, name, old)


_NONE = object()


def entries_of(conf: Any) -> Iterator[tuple[Any, Any]]:
    """Iterate over (option entry, its override) of a cfg-style object: ours holds objects, a tree's dictionaries."""
    state = vars(conf).get("_state")
    for entries in getattr(state, "groups", {}).values():
        for entry in entries.values():
            yield entry, entry.override
    groups = vars(conf).get("_groups") or {}
    tables = [vars(conf).get("_opts"), *(getattr(group, "_opts", None) for group in groups.values())]
    for table in tables:
        for info in (table or {}).values():
            if isinstance(info, dict):
                yield info, info.get("override", _NONE)


def forget_cached(conf: Any) -> None:
    """Have ``conf`` look up its options anew."""
    for cache in (getattr(vars(conf).get("_state"), "cache", None), vars(conf).get("_ConfigOpts__cache")):
        if cache is not None:
            cache.clear()


def has(conf: Any, name: str, group: str | None) -> bool:
    """Return whether ``conf`` has an option."""
    try:
        getattr(conf if group is None else getattr(conf, group), name)
    except Exception as error:
        # gflags, each cfg and oslo.config have their own class for this; none is a mere mistake of ours.
        if isinstance(error, NameError | TypeError):
            raise
        return False
    return True
