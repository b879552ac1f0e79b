"""The router's WELCOME: whether the session goes on, what was in flight if it does not, and what is believed of it."""

from __future__ import annotations

from dataclasses import replace

from rpcmq.wire.bodies import WelcomeBody

__all__ = ["Welcome", "believed", "is_next_life"]

#: The most that is believed of a WELCOME, and that a router can be set to: times (seconds), and bytes of a message.
#: Larger ones do not fit into the options of a socket, even of the one by which the next router is dialled.
_MAX_SECONDS = 86_400.0
_MAX_PERIOD = 3600.0
_MAX_MESSAGE_BYTES = 1 << 30


class Welcome:
    """The router's WELCOME, and the fate of the messages sent before it.

    Attributes:
        resumed: nothing was lost; the rest is empty then.
        sent: messages sent in the earlier session that were never acknowledged.
        unsent: messages that were never sent.
        same_handle: the keys of earlier messages are still ours.
        next_life: it is the router that we had before, and has been started since.
        elsewhere: it was reached by another url than the last one that welcomed us.
        drained: the last one had drained before it ended: it has told all that it had delivered.
        same_mesh: it is in the mesh of the last one.
    """

    __slots__ = ("drained", "elsewhere", "next_life", "resumed", "same_handle", "same_mesh", "sent", "unsent")

    def __init__(
        self, resumed: bool, same_handle: bool, sent: list[bytes], unsent: list[bytes], next_life: bool = False,
        elsewhere: bool = False, drained: bool = False, same_mesh: bool = False,
    ) -> None:  # fmt: skip
        self.resumed = resumed
        self.next_life = next_life
        self.elsewhere = elsewhere
        self.drained = drained
        self.same_handle = same_handle
        self.same_mesh = same_mesh
        self.sent = sent
        self.unsent = unsent


def believed(said: WelcomeBody) -> WelcomeBody:
    """Return ``said`` with times and sizes that this process can use."""
    heartbeat = min(said.heartbeat_seconds, _MAX_PERIOD)
    lost = said.lost_seconds if said.lost_seconds is not None else max(60.0, 2 * said.unresponsive_seconds)
    return replace(
        said,
        heartbeat_seconds=heartbeat,
        unresponsive_seconds=min(said.unresponsive_seconds, _MAX_SECONDS),
        lost_seconds=min(max(lost, 2 * heartbeat), _MAX_SECONDS),
        max_message_bytes=min(said.max_message_bytes, _MAX_MESSAGE_BYTES),
        recovery_seconds=min(said.recovery_seconds, _MAX_PERIOD),
    )


def is_next_life(before: WelcomeBody | None, said: WelcomeBody) -> bool:
    """Return whether ``said`` is of a later life of the router that has said ``before``; both came from one url.

    A router of a mesh leaves the id to who comes from another one, so for one that was alone before its name tells.
    """
    if before is None or before.router_id != said.router_id or before.boot == said.boot:
        return False
    return bool(before.mesh) is bool(said.mesh) or before.router == said.router
