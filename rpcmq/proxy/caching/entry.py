"""A stored response: its head, and what has to be known to use it again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rpcmq.proxy.messages import Headers, ResponseHead

__all__ = ["MalformedEntry", "StoredResponse"]


class MalformedEntry(ValueError):
    """A stored value that is no head of a stored response."""


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """All of a stored response but its body. Times are seconds of the wall clock.

    Attributes:
        key: the normalised URL under which it is found; see :func:`rpcmq.proxy.caching.keys.cache_key`.
        variant: tells apart the responses of one key that Vary; text of letters and digits, the same for the same
            selecting fields.
        selecting: names of the fields that Vary lists, in small letters and in order, with their normalised values in
            the request; None: the request did not have it.
        status, reason, headers: of the response, without the fields of the connection, Age and Content-Length.
        requested_at: time at which the request was sent to the origin.
        responded_at: time at which the head of the response came.
        initial_age: seconds from its generation to that (RFC 9111 section 4.2.3, corrected_initial_age).
        fresh_for: seconds of freshness that it was given, counted from its generation.
        stale_for: seconds after that during which it may be of use, stale or to be revalidated.
        tags: by which it can be purged (Surrogate-Key, Cache-Tag).
        body_size: bytes of its body, as its head declares them until they are there; -1 while they are not known.
        purged_at: time of a soft purge since when it is stale; 0: none.
        body_id: tells apart the bodies that a variant has had, so that no head is ever put before another one's body.
    """

    key: str
    variant: str
    selecting: tuple[tuple[str, str | None], ...]
    status: int
    reason: str
    headers: Headers
    requested_at: float
    responded_at: float
    initial_age: float
    fresh_for: float
    stale_for: float
    tags: tuple[str, ...] = ()
    body_size: int = -1
    purged_at: float = 0.0
    body_id: str = ""

    @property
    def head(self) -> ResponseHead:
        """The head as it was stored."""
        return ResponseHead(self.status, self.headers, self.reason)

    @property
    def useless_at(self) -> float:
        """Time from which a store may drop it: it is stale, and too old to be served or revalidated."""
        return self.responded_at - self.initial_age + self.fresh_for + self.stale_for

    @property
    def head_size(self) -> int:
        """Bytes that it takes written down, about."""
        return self._texts_size(8) + 2 * len(self.key) + 512

    @property
    def memory_size(self) -> int:
        """Bytes that it takes in memory, about: measured with CPython 3.11."""
        return self._texts_size(260) + 2 * len(self.key) + 1536

    def _texts_size(self, overhead: int) -> int:
        """Return the bytes of all texts but the key, with so many more for each."""
        pairs = (*self.headers, *self.selecting)
        texts = sum(len(name) + len(value or "") + overhead for name, value in pairs)
        return texts + sum(len(tag) + overhead for tag in self.tags) + len(self.reason)

    def age(self, now: float) -> float:
        """Return the seconds since its generation (RFC 9111 section 4.2.3, current_age)."""
        return self.initial_age + max(0.0, now - self.responded_at)

    def with_body_size(self, size: int) -> StoredResponse:
        """Return it with the size of its body, in bytes."""
        return replace(self, body_size=size)

    def to_dict(self) -> dict[str, Any]:
        """Return it as a value that JSON and BSON can hold."""
        return {
            "key": self.key,
            "variant": self.variant,
            "selecting": [list(pair) for pair in self.selecting],
            "status": self.status,
            "reason": self.reason,
            "headers": [list(field) for field in self.headers],
            "requested_at": self.requested_at,
            "responded_at": self.responded_at,
            "initial_age": self.initial_age,
            "fresh_for": self.fresh_for,
            "stale_for": self.stale_for,
            "tags": list(self.tags),
            "body_size": self.body_size,
            "purged_at": self.purged_at,
            "body_id": self.body_id,
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> StoredResponse:
        """Return the stored response in ``value``; members that are not known are passed over.

        Raises:
            MalformedEntry: there is none.
        """
        try:
            return cls(
                str(value["key"]),
                str(value["variant"]),
                tuple((str(name), None if text is None else str(text)) for name, text in value["selecting"]),
                int(value["status"]),
                str(value["reason"]),
                Headers((str(name), str(text)) for name, text in value["headers"]),
                float(value["requested_at"]),
                float(value["responded_at"]),
                float(value["initial_age"]),
                float(value["fresh_for"]),
                float(value["stale_for"]),
                tuple(map(str, value["tags"])),
                int(value["body_size"]),
                float(value["purged_at"]),
                str(value["body_id"]),
            )
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise MalformedEntry(f"no stored response: {error!r}") from error
