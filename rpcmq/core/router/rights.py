"""Keys and what each may do: (verb, exchange, topic pattern)."""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from rpcmq.core.common.rights import (
    ALL_VERBS,
    EVERYTHING,
    KNOWN_VERBS,
    MESH_VERB,
    Right,
    allows_pattern,
    matches,
)

__all__ = ["ALL_VERBS", "EVERYTHING", "KNOWN_VERBS", "MESH_VERB", "Key", "Right", "allows_pattern", "matches"]


@dataclass(frozen=True)
class Key:
    """A public key that may connect.

    Attributes:
        name: of the key; unique.
        public: the key itself, in Z85.
        rights: what it may do; nothing else is allowed.
        identities: which identities its processes may have, ``*`` standing for any text. Empty: its name, and
            whatever begins with its name and ``:`` or ``/``.
        owner: whom to ask about it.
        expires: when it ends, as text; for views only: who reads the key files lets an expired one go.
        max_links: links at a time; None: as the router is set.
        messages_per_second: None: as the router is set; 0: no limit.
        formats: mask of the payload formats that it may send; None: all.
    """

    name: str
    public: str
    rights: tuple[Right, ...] = ()
    identities: tuple[str, ...] = field(default=())
    owner: str = ""
    expires: str = ""
    max_links: int | None = None
    messages_per_second: float | None = None
    formats: int | None = None

    def may_be(self, identity: str) -> bool:
        """Return whether a process with this key may have ``identity``."""
        patterns = self.identities or (self.name, f"{self.name}:*", f"{self.name}/*")
        return any(fnmatchcase(identity, pattern.replace("[", "[[]").replace("?", "[?]")) for pattern in patterns)

    @property
    def is_router(self) -> bool:
        """Whether it is another router's of the mesh; then it is no process's."""
        return any(MESH_VERB in right.verbs for right in self.rights)

    def right_for(self, verb: str, exchange: str, name: str) -> Right | None:
        """The first right that covers it; None: it is not allowed."""
        return next((right for right in self.rights if right.allows(verb, exchange, name)), None)
