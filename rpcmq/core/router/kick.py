"""Controls: what an operator asks a running router to do.

A control is asked for like a view, and needs the right ``admin`` on its name. The names have two words, so that ``*``
covers all views and no control.
"""

from __future__ import annotations

from collections.abc import Callable

from rpcmq.core.common.text import shorten
from rpcmq.core.router.actions import Action, Answer
from rpcmq.core.router.link_table import LinkTable
from rpcmq.core.router.model import Link
from rpcmq.errors import ProtocolError
from rpcmq.wire.bodies import RefusedBody
from rpcmq.wire.query_bodies import KickAnswer, KickQuery

__all__ = ["FREE", "kick"]

#: Controls that need no right: they only concern messages that the asking process has.
FREE = frozenset({"caller"})


def kick(links: LinkTable, act: Callable[[Action], None], now: float, link: Link, message: bytes) -> KickAnswer:
    """End the links of a process, as if it had gone. A live process reconnects with new sessions."""
    identity = KickQuery.of(message).identity
    if identity == link.identity:
        raise ProtocolError("a process cannot kick itself", "query")
    of_process = list(links.of_identity(identity))
    reason = f"kicked by {link.identity}"
    for each in of_process:
        if each.route is not None:
            # The process starts over on a new connection, and has link.handshake_seconds to close this one.
            refusal = RefusedBody(reason="kicked", text=shorten(reason)).message()
            act(Answer(each.route, refusal))
        links.end(now, each, reason)
    return KickAnswer(links=len(of_process))
