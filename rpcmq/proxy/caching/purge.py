"""Purges: orders to forget stored responses, or to treat them as stale."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import Enum
from math import isfinite
from typing import Any

from rpcmq.proxy.caching.entry import StoredResponse

__all__ = ["MalformedPurge", "Purge", "PurgeKind"]


class MalformedPurge(ValueError):
    """A value that is no purge; the text says why."""


class PurgeKind(Enum):
    """Properties by which stored responses are purged."""

    URL = "url"
    PREFIX = "prefix"
    TAG = "tag"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Purge:
    """An order to forget stored responses.

    Attributes:
        kind: the property that counts.
        value: for URL the key (:func:`rpcmq.proxy.caching.keys.cache_key` of the URL), for PREFIX the beginning of
            keys, for TAG a tag; for ALL it means nothing, and is empty whatever was given.
        at: time of the wall clock; responses to requests that were sent later are not meant.
        soft: whether the responses stay, as stale ones, rather than go.
    """

    kind: PurgeKind
    value: str
    at: float
    soft: bool = False

    def __post_init__(self) -> None:
        if self.kind is PurgeKind.ALL:
            # Stores look purges up by kind and value.
            object.__setattr__(self, "value", "")

    def is_about(self, entry: StoredResponse) -> bool:
        """Return whether ``entry`` is meant."""
        if entry.requested_at > self.at:
            return False
        match self.kind:
            case PurgeKind.URL:
                return entry.key == self.value
            case PurgeKind.PREFIX:
                return entry.key.startswith(self.value)
            case PurgeKind.TAG:
                return self.value in entry.tags
            case PurgeKind.ALL:
                return True

    def applied_to(self, entry: StoredResponse) -> StoredResponse | None:
        """Return ``entry``, as it is where it is not meant, stale where the purge is soft; None: it goes."""
        if not self.is_about(entry):
            return entry
        return replace(entry, purged_at=max(entry.purged_at, self.at)) if self.soft else None

    def to_dict(self) -> dict[str, Any]:
        """Return it as a value that JSON can hold."""
        return asdict(self) | {"kind": self.kind.value}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Purge:
        """Return the purge in ``value``.

        Raises:
            MalformedPurge: there is none.
        """
        try:
            at = float(value["at"])
            if not isfinite(at):
                raise ValueError("its time is none")
            return cls(PurgeKind(value["kind"]), str(value["value"]), at, bool(value.get("soft", False)))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise MalformedPurge(f"no purge: {error!r}") from error
