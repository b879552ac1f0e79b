"""The payload checker of a process: nothing in it is decoded but here, and in ``trusted_payloads``.

:class:`Payloads` is that of a process without a trust policy.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from rpcmq.core.process.call import Call
from rpcmq.core.process.sent_streams import StreamingCall
from rpcmq.core.process.task import Task
from rpcmq.errors import PayloadRefused, RemoteError
from rpcmq.payload import ALL, Codec
from rpcmq.payload.remote_exception import UNDECODABLE
from rpcmq.payload.seal import NotTrusted, split_signature
from rpcmq.wire import FORMAT_AT, Address, Flag, flags_of, payload_of

__all__ = ["Payloads", "is_signed"]


class Payloads:
    """Payload handling without a trust policy: accepts what the codec accepts.

    Attributes:
        signs: whether what is sent gets a signature.
        overhead: most bytes that this adds to a payload.
        limits: whether some topics take fewer formats than the process: see :meth:`formats`.
    """

    signs = False
    limits = False
    overhead = 0

    def __init__(self, codec: Codec) -> None:
        self.codec = codec
        #: Payloads that were refused before they were decoded, by reason, and those that the codec refused.
        self.refused: Counter[str] = Counter()

    # --- what came ---------------------------------------------------------------------------

    def request(self, task: Task) -> Any:
        """The value of a request or cast.

        Raises:
            PayloadRefused: it is malformed or not allowed.
        """
        if task.seal is None:
            return self._decode(self.codec, task.format, task.payload)
        # Senders may sign before receivers check.
        task.seal = None
        return self._decode(self.codec, task.format, self._without_signature(task.payload))

    def answer(self, call: Call, message: bytes) -> Any:
        """The value of a REPLY, an ITEM or a progress to ``call``.

        Raises:
            PayloadRefused: as above.
        """
        return self._decode(self.codec, message[FORMAT_AT], payload_of(message))

    def failure(self, call: Call, message: bytes) -> BaseException:
        """The exception in a FAULT for ``call``.

        Raises:
            PayloadRefused: it was refused before it was decoded.
        """
        return self._decode_failure(self.codec, message[FORMAT_AT], payload_of(message))

    def check_end(self, call: Call, message: bytes) -> None:
        """Check the END of a stream.

        Raises:
            NotTrusted: it is not signed as required.
        """

    def event(self, message: bytes, again: bool) -> Any:
        """The value of an event.

        Args:
            again: this process has had it before, for another of its subscriptions.

        Raises:
            PayloadRefused: as above.
        """
        payload = payload_of(message)
        return self._decode(
            self.codec, message[FORMAT_AT], self._without_signature(payload) if is_signed(message) else payload
        )

    def item(self, address: Address, format: int, payload: bytes) -> Any:
        """The value of an item of a queue, which came for the consumer of ``address`` within a request.

        Raises:
            PayloadRefused: as above.
        """
        return self._decode(self.codec, format, payload)

    def sent_item(self, task: Task, message: bytes, number: int) -> Any:
        """The value of a REQUEST_ITEM, the item ``number`` of the stream of ``task``; bytes are sent in no format.

        Raises:
            PayloadRefused: as above.
        """
        payload = payload_of(message)
        if is_signed(message):
            payload = self._without_signature(payload)
        return self._decode(self.codec, message[FORMAT_AT], payload) if message[FORMAT_AT] else bytes(payload)

    def sent_end(self, task: Task, message: bytes, number: int) -> BaseException | None:
        """The exception of the caller's iterable in a REQUEST_END; None: it has come to its end, as number ``number``.

        Raises:
            PayloadRefused: as above.
        """
        payload = payload_of(message)
        if is_signed(message):
            payload = self._without_signature(payload)
        return self._decode_failure(self.codec, message[FORMAT_AT], payload) if message[FORMAT_AT] else None

    def own(self, message: bytes) -> Any:
        """The value of a message that this process has sent itself."""
        payload = payload_of(message)
        return self.codec.decode(message[FORMAT_AT], split_signature(payload) if is_signed(message) else payload)

    def _decode(self, codec: Codec, format: int, payload: bytes | memoryview) -> Any:
        try:
            return codec.decode(format, payload)
        except PayloadRefused:
            self.refused["decoder"] += 1
            raise

    def _decode_failure(self, codec: Codec, format: int, payload: bytes | memoryview) -> BaseException:
        try:
            error = codec.decode_exception(format, payload)
        except PayloadRefused:
            self.refused["decoder"] += 1
            raise
        if isinstance(error, RemoteError) and error.exc_type == UNDECODABLE:
            self.refused["decoder"] += 1
        return error

    def _without_signature(self, payload: bytes | memoryview) -> bytes | memoryview:
        try:
            return split_signature(payload)
        except NotTrusted as error:
            self.refused[error.reason] += 1
            raise

    # --- what goes ---------------------------------------------------------------------------

    def formats(self, address: bytes) -> int:
        """Mask of the formats that may be used with an address."""
        return ALL

    def sign_request(
        self, kind: int, call: Call | None, flags: int, format: int, payload: bytes, address: bytes, method: bytes,
        life: float | None,
    ) -> tuple[int, bytes]:  # fmt: skip
        """Flags and payload of a request, cast or event."""
        return flags, payload

    def sign_item(self, call: StreamingCall, kind: int, format: int, payload: bytes) -> tuple[int, bytes]:
        """Flags and payload of an item, or of the end, of the stream of a request."""
        return 0, payload

    def sign_answer(self, task: Task, kind: int, format: int, payload: bytes) -> tuple[int, bytes]:
        """Flags and payload of an answer to a request that was signed."""
        return 0, payload


def is_signed(message: bytes) -> bool:
    """Return whether a message is signed."""
    return bool(flags_of(message) & Flag.SEALED)
