"""A process as a plugged-in node sees it."""

from __future__ import annotations

from rpcmq.core.router.link_states import LinkState
from rpcmq.core.router.model import Link

__all__ = ["Peer"]


class Peer:
    """A process that is linked to the router: one object for the life of its link, which can be a key of a dict."""

    __slots__ = ("_link", "_node")

    def __init__(self, link: Link, node: str) -> None:
        self._link = link
        self._node = node

    def __repr__(self) -> str:
        return f"<Peer {self.identity!r}>"

    @property
    def identity(self) -> str:
        """The name of the process."""
        return self._link.identity

    @property
    def key(self) -> str:
        """The name of the key that it has connected with; empty without access control."""
        return self._link.key.name if self._link.key is not None else ""

    @property
    def is_here(self) -> bool:
        """Whether it is connected; one that is away may come back."""
        return self._link.route is not None

    @property
    def has_ended(self) -> bool:
        """Whether it is gone for good."""
        return self._link.state is LinkState.ENDED

    def may(self, name: str) -> bool:
        """Return whether its key has the right ``node`` on ``name`` below the node's name; True without keys.

        Args:
            name: words between dots: the key needs the right on ``NODE.name``.
        """
        key = self._link.key
        return key is None or key.right_for("node", "", f"{self._node}.{name}") is not None
