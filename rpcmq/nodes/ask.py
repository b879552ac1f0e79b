"""A message for a plugged-in node, which is answered once: now, or later."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from rpcmq.core.common.text import shorten
from rpcmq.core.router.base_link import outgoing_bytes
from rpcmq.core.router.model import Link
from rpcmq.errors import Outcome, ProtocolError
from rpcmq.nodes.peer import Peer
from rpcmq.wire import KEY, KIND_AT, Kind, json_bytes, pack, payload_of
from rpcmq.wire.bodies import ErrorBody

__all__ = ["Ask"]

#: Bytes that may wait for a process, beyond which it gets no more answers of nodes but errors.
_MAX_WAITING_BYTES = 16 << 20
_RAW, _JSON = 0, 1


class Ask:
    """A message of one of the node's kinds, and the way to answer it.

    Attributes:
        link: the router's own, and not for nodes.
        peer: who has sent it.
        kind: of the message.
        payload: its bytes, which are the node's own affair.
        expires_at: when its sender waits for it no more (monotonic seconds).
    """

    __slots__ = ("_key", "_most", "_on_end", "_right", "expires_at", "kind", "link", "payload", "peer")

    def __init__(
        self, link: Link, peer: Peer, message: bytes, expires_at: float, right: str, most: int,
        on_end: Callable[[Ask], None],
    ) -> None:  # fmt: skip
        self.link = link
        self._most = most
        self._key = bytes(message[KEY])
        self._on_end: Callable[[Ask], None] | None = on_end
        self._right = right
        self.peer = peer
        self.kind = message[KIND_AT]
        self.payload = bytes(payload_of(message))
        self.expires_at = expires_at

    def __repr__(self) -> str:
        return f"<Ask {self.kind:#04x} of {self.peer.identity!r}>"

    @property
    def is_open(self) -> bool:
        """Whether it is still to be answered."""
        return self._on_end is not None

    def json_object(self, max_bytes: int) -> dict[str, Any]:
        """Return the JSON object that the payload is.

        Raises:
            ProtocolError: it is none, or has more than ``max_bytes``. What ``take`` raises of these goes to the sender.
        """
        if len(self.payload) > max_bytes:
            raise ProtocolError(
                f"an ask of {len(self.payload)} bytes; at most {max_bytes} are allowed", self.peer._node
            )
        try:
            asked = json.loads(self.payload)
        except (ValueError, RecursionError):
            asked = None
        if not isinstance(asked, dict):
            raise ProtocolError("an ask is a JSON object", self.peer._node)
        return asked

    def require(self, name: str) -> bool:
        """Check that the sender has the right ``node`` on ``NODE.name``; refuse the ask if it has not.

        A kind without a right of its own must be checked like this before it is answered.

        Returns:
            Whether it has; if not, the ask has ended.
        """
        self._right = name
        if self.peer.may(name):
            return True
        shown = shorten(f"{self.peer._node}.{name}")
        text = f"key {self.peer.key!r} has no right to node {shown!r}"
        self._end_with(Outcome.DENIED, text, {"verb": "node", "topic": shown, "key": self.peer.key})
        return False

    def answer(self, payload: bytes = b"") -> bool:
        """Send ``payload`` to the one who asks.

        Returns:
            Whether it was sent. It is not if it has ended before, or where so much waits for that process that it gets
            an error.

        Raises:
            PermissionError: the right for it was not checked: a mistake of the node.
            TypeError: it is not bytes.
        """
        if not isinstance(payload, bytes):
            raise TypeError(f"an answer is bytes, not {type(payload).__name__}")
        return self._answer(payload, _RAW)

    def answer_json(self, value: Mapping[str, Any]) -> bool:
        """Do as :meth:`answer` with ``value`` as JSON."""
        return self._answer(json_bytes(value), _JSON)

    def _answer(self, payload: bytes, form: int) -> bool:
        if self._on_end is None:
            return False
        if not self._right:
            raise PermissionError(f"kind {self.kind:#04x} has no right of its own: call require() before answer()")
        if len(payload) > self._most:
            text = f"the answer of {len(payload)} bytes exceeds message.max_bytes = {self._most}"
            self.refuse(text, Outcome.OVERLOADED)
            return False
        if (waiting := outgoing_bytes(self.link)) > _MAX_WAITING_BYTES:
            self.refuse(f"{waiting} bytes wait for this process already", Outcome.OVERLOADED)
            return False
        self._close()
        self.link.send(pack(Kind.ANSWER, payload, format=form, key=self._key))
        return True

    def refuse(self, text: str, outcome: Outcome = Outcome.PROTOCOL, **details: Any) -> None:
        """End it with an error: what went wrong, and what to do."""
        self._end_with(outcome, text, details)

    def _end_with(self, outcome: Outcome, text: str, details: dict[str, Any]) -> None:
        if self._on_end is not None:
            self._close()
            body = ErrorBody(outcome=outcome, text=shorten(text), details=details)
            self.link.send(body.message(key=self._key))

    def _close(self) -> None:
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end(self)

    def drop(self) -> None:
        """Forget it without a word, where nobody waits for an answer."""
        self._close()
