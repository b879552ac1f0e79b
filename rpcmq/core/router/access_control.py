"""Access control: who may connect as whom, and what a link may do. Without CURVE, everybody may do everything.

The transport says under which public key a connection was authenticated. :meth:`AccessControl.admit` decides whether
the process behind it may have an identity; the :class:`Admission` that it returns decides about the process's link.
:class:`~rpcmq.core.router.key_access.KeyAccessControl` is the implementation for CURVE.
"""

from __future__ import annotations

from typing import Protocol

from rpcmq.core.router.model import Destination, Link
from rpcmq.core.router.permissions import KeyUsage

__all__ = ["AccessControl", "Admission", "AllowAll", "Refusal"]


class Refusal(Exception):
    """A HELLO that is refused.

    Args:
        reason: as REFUSED and the counters have it.
        text: one sentence.
    """

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class Admission(Protocol):
    """A process that may connect under the identity that it asked for."""

    def owns(self, link: Link) -> bool:
        """Return whether ``link`` belongs to the same key: a token is worth nothing under another one."""

    def check_room(self) -> None:
        """Check whether the key may have one more link.

        Raises:
            Refusal: it has as many as it may.
        """

    def check_process(self) -> None:
        """Check whether it may be a process.

        Raises:
            Refusal: it may not: its key is a router's.
        """

    def check_router(self, router_id: int) -> None:
        """Check whether it may be another router of the mesh, and have this id.

        Raises:
            Refusal: it may not.
        """

    def may_keep_handle(self, router_id: int, handle: int, token: object) -> bool:
        """Return whether ``token`` proves that router ``router_id``, in any life, gave the process ``handle``."""

    def attach(self, link: Link) -> None:
        """Let ``link``, which is new, belong to the key, and restrict it to what that may do."""


class AccessControl(Protocol):
    """Decides who may connect as whom, and what a link may do."""

    def admit(self, user: str, identity: str) -> Admission:
        """Decide whether a process may connect.

        Args:
            user: the public key of its connection; empty without CURVE.
            identity: the one that it asks for.

        Raises:
            Refusal: it may not.
        """

    def connected(self, now: float, link: Link) -> None:
        """Handle a link that is connected (again)."""

    def ended(self, link: Link) -> None:
        """Handle the end of a link."""

    def may_send(self, link: Link, message: bytes, destination: Destination | None) -> bool:
        """Return whether ``link`` may send the call or cast ``message`` to ``destination``; its process is told if not.

        Asked only for what is not in :attr:`Link.allowed_calls` and :attr:`Link.allowed_casts`.
        """

    def introduced(self, one: Link, other: Link) -> None:
        """Handle an introduction: the two processes may have a direct link from now on."""

    def knows_router(self, public: str) -> bool:
        """Return whether the router with the public key ``public`` may be linked; without CURVE any may be."""

    def usages(self) -> list[KeyUsage] | None:
        """Return the keys and their use; None without keys."""


class AllowAll(AccessControl, Admission):
    """Everybody may connect, as anybody, and do everything: a router without CURVE."""

    def admit(self, user: str, identity: str) -> Admission:
        """Admit everybody."""
        return self

    def owns(self, link: Link) -> bool:
        """Ask for nothing but the token."""
        return True

    def check_room(self) -> None:
        """Set no limit for one process."""

    def check_process(self) -> None:
        """Let everybody be a process."""

    def check_router(self, router_id: int) -> None:
        """Let everybody be a router."""

    def may_keep_handle(self, router_id: int, handle: int, token: object) -> bool:
        """Believe every process."""
        return True

    def attach(self, link: Link) -> None:
        """Restrict nothing."""

    def connected(self, now: float, link: Link) -> None:
        """Do nothing."""

    def ended(self, link: Link) -> None:
        """Do nothing."""

    def may_send(self, link: Link, message: bytes, destination: Destination | None) -> bool:
        """Allow everything."""
        return True

    def introduced(self, one: Link, other: Link) -> None:
        """Do nothing."""

    def knows_router(self, public: str) -> bool:
        """Know everybody."""
        return True

    def usages(self) -> list[KeyUsage] | None:
        """There are no keys."""
        return None
