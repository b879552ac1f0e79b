"""The part of the mesh that joins large payloads, which other routers send in pieces (:mod:`rpcmq.wire.pieces`).

The pieces of a payload follow each other in the session of the link, and behind the last one comes the message itself,
with the end of its payload. If another message comes there, the sender has taken that message back meanwhile. What has
come is charged to the link, and stays when the connection is lost: a resumed session goes on behind it.
"""

from __future__ import annotations

from rpcmq.core.router.mesh.neighbours import Neighbour
from rpcmq.core.router.mesh.part import MeshContext, MeshPart
from rpcmq.core.router.model import Handler, Link
from rpcmq.core.router.protocol_errors import refuse_connection
from rpcmq.errors import ProtocolError
from rpcmq.wire import FIRST_SESSION_KIND, KEY, KIND_AT, LOW_FLAGS_AT, Detached, Flag, Kind, payload_of
from rpcmq.wire.pieces import Piece, parse_piece

__all__ = ["Pieces"]


class Pieces(MeshPart):
    """Joins what comes in pieces."""

    def __init__(self, context: MeshContext) -> None:
        self._node = context.node
        self._beginnings: dict[Link, _Beginning] = {}
        self.kinds = {Kind.PIECE: self._take}

    def neighbour_gone(self, now: float, neighbour: Neighbour, reason: str) -> None:
        """The rest will not come."""
        if neighbour.link in self._beginnings:
            self._end(neighbour.link)

    def _take(self, now: float, link: Link, message: bytes) -> None:
        """Take a PIECE."""
        try:
            self._add(link, parse_piece(message))
        except ProtocolError as error:
            self._break(now, link, error)
            raise

    def _add(self, link: Link, piece: Piece) -> None:
        beginning = self._beginnings.get(link)
        if not piece.offset:
            if beginning is not None:
                self._end(link)
            beginning = self._begin(link, piece)
        elif beginning is None or not beginning.goes_on_with(piece):
            raise ProtocolError(f"PIECE from byte {piece.offset} on does not follow the one before it", "pieces")
        beginning.offset += len(piece.data)
        if not beginning.is_refused:
            beginning.data += piece.data
            link.usage.size_bytes += len(piece.data)

    def _begin(self, link: Link, first: Piece) -> _Beginning:
        is_refused = first.total > self._node.settings.message_max_bytes
        begun = self._beginnings[link] = _Beginning(first, link.handlers.copy(), is_refused)
        # In place: the rest of the batch is handled with this table.
        link.handlers[FIRST_SESSION_KIND:] = [self._join] * (256 - FIRST_SESSION_KIND)
        link.handlers[Kind.PIECE] = self._take
        return begun

    def _end(self, link: Link) -> _Beginning:
        """Forget what has come; the messages of ``link`` are handled as ever."""
        ended = self._beginnings.pop(link)
        link.usage.size_bytes -= len(ended.data)
        link.handlers[:] = ended.handlers
        return ended

    def _join(self, now: float, link: Link, message: bytes) -> None:
        """Handle the message behind the last piece."""
        beginning = self._end(link)
        handle = beginning.handlers[message[KIND_AT]]
        if not beginning.is_of(message):
            handle(now, link, message)
            return
        end = payload_of(message)
        if beginning.offset + len(end) != beginning.total:
            text = f"{beginning.offset} + {len(end)} bytes came in pieces of a payload of {beginning.total}"
            error = ProtocolError(text, "pieces")
            self._break(now, link, error)
            raise error
        if beginning.is_refused:
            most = self._node.settings.message_max_bytes
            raise ProtocolError(f"payload of {beginning.total} bytes exceeds message.max_bytes = {most}", "size")
        beginning.data += end
        handle(now, link, Detached.of(message, memoryview(beginning.data).toreadonly()))

    def _break(self, now: float, link: Link, error: ProtocolError) -> None:
        """End ``link``: of a payload with a hole nothing may be used."""
        route = link.route
        if link in self._beginnings:
            self._end(link)
        link.handlers[FIRST_SESSION_KIND:] = [_ignore] * (256 - FIRST_SESSION_KIND)
        self._node.links.end_safely(now, link, str(error))
        if route is not None:
            refuse_connection(self._node.act, route, "protocol", str(error))


class _Beginning:
    """The pieces of a payload that have come.

    Attributes:
        offset: their bytes.
        total: bytes of the whole payload.
        data: the pieces; nothing of a payload that is refused.
        is_refused: whether the payload is longer than this router takes.
        handlers: those of the link, by kind.
    """

    __slots__ = ("_key", "_kind", "data", "handlers", "is_refused", "offset", "total")

    def __init__(self, first: Piece, handlers: list[Handler], is_refused: bool) -> None:
        self._key, self._kind, self.total = first.key, first.kind, first.total
        self.handlers, self.is_refused = handlers, is_refused
        self.data = bytearray()
        self.offset = 0

    def goes_on_with(self, piece: Piece) -> bool:
        """Return whether ``piece`` is the next one."""
        return (piece.key, piece.kind, piece.offset, piece.total) == (self._key, self._kind, self.offset, self.total)

    def is_of(self, message: bytes) -> bool:
        """Return whether they are of the payload of ``message``."""
        is_detached = message[LOW_FLAGS_AT] & Flag.DETACHED
        return bool(is_detached) and message[KEY] == self._key and message[KIND_AT] == self._kind


def _ignore(now: float, link: Link, message: bytes) -> None:
    """The link has ended."""
