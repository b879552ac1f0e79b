"""The payload checker of a process with a trust policy.

:class:`TrustedPayloads` checks signature, age, repetition and format, in this order, before anything is decoded, and
decodes within what the topic allows.
"""

from __future__ import annotations

import logging
from time import monotonic
from typing import Any, NoReturn

from rpcmq.client.payloads import Payloads, is_signed
from rpcmq.core.process.call import Call
from rpcmq.core.process.sent_streams import StreamingCall
from rpcmq.core.process.task import Registration, Task
from rpcmq.payload import Codec, Format
from rpcmq.payload.audit import Audit
from rpcmq.payload.format import accept_names, format_name
from rpcmq.payload.seal import OVERHEAD, MacKeys, NotTrusted, ReplayGuard, Signer, VerifiedPayload
from rpcmq.payload.trust import Policy, Rule
from rpcmq.wire import FORMAT_AT, KIND_AT, Address, Flag, Kind, address_of, method_block_of, parse, payload_of

__all__ = ["TrustedPayloads"]

log = logging.getLogger("rpcmq.trust")

#: Flags that a receiver acts on and a signature covers. RESENT and DETACHED may change on the way.
_COVERED = Flag.FANOUT | Flag.IDEMPOTENT | Flag.STREAM | Flag.ACCEPTS_DILL
#: Interval between log lines about the same refusal (seconds).
_LOG_EVERY = 60.0
#: Most topics whose rule is cached.
_KEPT = 10_000
_JSON = Format.JSON.bit


class _Answers:
    """Progress of the answer to a signed request. Both ends count."""

    __slots__ = ("items", "tag")

    def __init__(self, tag: bytes) -> None:
        self.tag = tag
        self.items = 0


class TrustedPayloads(Payloads):
    """Payload handling with a trust policy, signing keys, or an audit.

    Args:
        codec: what the process accepts.
        policy: what topics accept.
        keys: to sign and to check with; None: nothing is signed, and signatures are not looked at.
        identity: of this process.
        audit: notes what is decoded.

    Raises:
        ConfigError: the policy has an entry that cannot be used here.
    """

    limits = True

    def __init__(
        self, codec: Codec, policy: Policy, keys: MacKeys | None, identity: str, audit: Audit | None = None
    ) -> None:
        super().__init__(codec)
        policy.check(codec)
        self._policy = policy
        self._audit = audit
        self._sealer = Signer(keys, identity, policy.window, policy.skew) if keys is not None else None
        self._replays = ReplayGuard(policy.remember)
        #: (exchange, topic) -> rule and its codec.
        self._by_topic: dict[tuple[str, str], tuple[Rule, Codec]] = {}
        self._by_block: dict[bytes, tuple[str, str]] = {}
        self._logged: dict[tuple[str, str], float] = {}
        self.signs = self._sealer is not None
        self.overhead = OVERHEAD if self.signs else 0

    # --- what came ---------------------------------------------------------------------------

    def request(self, task: Task) -> Any:
        """Like :meth:`Payloads.request`."""
        message, task.seal = task.seal, None
        ours = task.registration.address
        where = ours.exchange, ours.topic
        opened = None
        if message is not None:
            opened = self._checked(where, self._open_request, task, message)
            if opened is not None:
                task.seal = _Answers(opened.tag)
        payload: bytes | memoryview = task.payload
        if opened is not None:
            payload = opened.payload
        elif message is not None:
            payload = self._without_signature(payload)
        return self._decoded(where, opened, task.format, payload)

    def answer(self, call: Call, message: bytes) -> Any:
        """Like :meth:`Payloads.answer`."""
        where = self._where(address_of(call.message))
        opened = self._open_answer(where, call, message)
        return self._decoded(
            where, opened, message[FORMAT_AT], payload_of(message) if opened is None else opened.payload
        )

    def failure(self, call: Call, message: bytes) -> BaseException:
        """Like :meth:`Payloads.failure`."""
        where = self._where(address_of(call.message))
        opened = self._open_answer(where, call, message)
        codec = self._accepting(where, opened, message[FORMAT_AT])
        return self._decode_failure(
            codec, message[FORMAT_AT], payload_of(message) if opened is None else opened.payload
        )

    def check_end(self, call: Call, message: bytes) -> None:
        """Like :meth:`Payloads.check_end`."""
        where = self._where(address_of(call.message))
        if self._open_answer(where, call, message) is None and self._rule(where)[0].require:
            self._refuse(where, NotTrusted("it is not signed", "not signed"))

    def event(self, message: bytes, again: bool) -> Any:
        """Like :meth:`Payloads.event`."""
        where = self._where(address_of(message))
        opened = None
        payload = payload_of(message)
        if is_signed(message):
            opened = self._checked(where, self._open_event, message, again)
            payload = self._without_signature(payload) if opened is None else opened.payload
        return self._decoded(where, opened, message[FORMAT_AT], payload)

    def item(self, address: Address, format: int, payload: bytes) -> Any:
        """Like :meth:`Payloads.item`. No signature of its producer is on it."""
        return self._decoded((address.exchange, address.topic), None, format, payload)

    def sent_item(self, task: Task, message: bytes, number: int) -> Any:
        """Like :meth:`Payloads.sent_item`. It is signed if, and only if, the request is."""
        where, opened = self._open_sent(task, message, number)
        form = message[FORMAT_AT]
        payload = self._unsigned(message) if opened is None else opened.payload
        return self._decoded(where, opened, form, payload) if form else bytes(payload)

    def sent_end(self, task: Task, message: bytes, number: int) -> BaseException | None:
        """Like :meth:`Payloads.sent_end`."""
        _, opened = self._open_sent(task, message, number)
        payload = self._unsigned(message) if opened is None else opened.payload
        return self._decode_failure(self.codec, message[FORMAT_AT], payload) if message[FORMAT_AT] else None

    def _open_sent(self, task: Task, message: bytes, number: int) -> tuple[tuple[str, str], VerifiedPayload | None]:
        where = task.registration.address.exchange, task.registration.address.topic
        answers: _Answers | None = task.seal
        if answers is None or self._sealer is None:
            return where, None
        if not is_signed(message):
            self._refuse(where, NotTrusted("it is not signed, and its request was", "not signed"))
        kind, form = message[KIND_AT], message[FORMAT_AT]
        try:
            opened = self._sealer.open(payload_of(message), (kind,), form, bound=answers.tag, number=number)
        except NotTrusted as error:
            self._refuse(where, error)
        return where, opened

    def _unsigned(self, message: bytes) -> bytes | memoryview:
        payload = payload_of(message)
        return self._without_signature(payload) if is_signed(message) else payload

    # --- what goes ---------------------------------------------------------------------------

    def formats(self, address: bytes) -> int:
        """Like :meth:`Payloads.formats`."""
        return self._rule(self._where(address))[1].accepted

    def sign_request(
        self, kind: int, call: Call | None, flags: int, format: int, payload: bytes, address: bytes, method: bytes,
        life: float | None,
    ) -> tuple[int, bytes]:  # fmt: skip
        """Like :meth:`Payloads.sign_request`."""
        assert self._sealer is not None
        payload, tag = self._sealer.seal(
            kind, format, payload, flags=flags & _COVERED, address=address, method=method, life=life
        )
        if call is not None:
            call.seal = _Answers(tag)
        return flags | Flag.SEALED, payload

    def sign_item(self, call: StreamingCall, kind: int, format: int, payload: bytes) -> tuple[int, bytes]:
        """Like :meth:`Payloads.sign_item`."""
        answers: _Answers | None = call.seal
        if answers is None or self._sealer is None:
            return 0, payload
        number = call.sent + 1
        return Flag.SEALED, self._sealer.seal(kind, format, payload, bound=answers.tag, number=number)[0]

    def sign_answer(self, task: Task, kind: int, format: int, payload: bytes) -> tuple[int, bytes]:
        """Like :meth:`Payloads.sign_answer`."""
        assert self._sealer is not None
        answers: _Answers = task.seal
        number = _numbered(answers, kind, task.flags)
        return Flag.SEALED, self._sealer.seal(kind, format, payload, bound=answers.tag, number=number)[0]

    # --- signatures --------------------------------------------------------------------------

    def _checked(self, where: tuple[str, str], check: Any, *args: Any) -> VerifiedPayload | None:
        """Return the payload that ``check`` verified; None if no check is possible or needed here."""
        try:
            opened: VerifiedPayload | None = check(*args)
        except NotTrusted as error:
            if error.reason != "unknown key" or self._rule(where)[0].require:
                self._refuse(where, error)
            opened = None
        return opened

    def _open_request(self, task: Task, message: bytes) -> VerifiedPayload | None:
        sealer, registration = self._sealer, task.registration
        if sealer is None:
            return None
        header = parse(message)
        block = address_of(message)
        address = Address.decode(block)
        if not _serves(registration, address):
            raise NotTrusted(f"it was sent to {str(address)!r}, and brought to {registration.address}", "misrouted")
        kinds: tuple[int, ...] = (header.kind,)
        if registration.group and header.kind == Kind.CAST:
            # A group gets a copy of a call as a cast.
            kinds = Kind.CAST, Kind.REQUEST
        flags = header.flags & _COVERED
        opened = sealer.open(
            task.payload,
            kinds,
            header.format,
            flags=flags,
            address=block,
            method=method_block_of(message),
        )
        # Idempotent requests may legitimately arrive more than once within their lifetime.
        if not flags & Flag.IDEMPOTENT:
            shared = flags & Flag.FANOUT or registration.group
            nonce = opened.nonce + (bytes((registration.tag,)) if shared else b"")
            self._replays.check(sealer.now(), nonce, opened.time, sealer.until(opened))
        return opened

    def _open_event(self, message: bytes, again: bool) -> VerifiedPayload | None:
        sealer = self._sealer
        if sealer is None:
            return None
        opened = sealer.open(payload_of(message), (Kind.PUBLISH,), message[FORMAT_AT], address=address_of(message))
        if not again:
            self._replays.check(sealer.now(), opened.nonce, opened.time, sealer.until(opened))
        return opened

    def _open_answer(self, where: tuple[str, str], call: Call, message: bytes) -> VerifiedPayload | None:
        """The payload of an answer; None: it is not signed."""
        if not is_signed(message):
            return None
        answers: _Answers | None = call.seal
        if answers is None or self._sealer is None:
            self._refuse(where, NotTrusted("it answers a request that was not signed", "malformed signature"))
        kind = message[KIND_AT]
        number = _numbered(answers, kind, call.flags)
        try:
            return self._sealer.open(payload_of(message), (kind,), message[FORMAT_AT], bound=answers.tag, number=number)
        except NotTrusted as error:
            self._refuse(where, error)

    # --- rules -------------------------------------------------------------------------------

    def _where(self, block: bytes) -> tuple[str, str]:
        known = self._by_block.get(block)
        if known is None:
            address = Address.decode(block)
            if len(self._by_block) >= _KEPT:
                self._by_block.clear()
            known = self._by_block[block] = address.exchange, address.topic
        return known

    def _rule(self, where: tuple[str, str]) -> tuple[Rule, Codec]:
        known = self._by_topic.get(where)
        if known is None:
            rule = self._policy.rule_for(*where)
            codec = rule.codec(self.codec)
            if self._audit is not None:
                codec = self._audit.codec(*where, codec)
            if len(self._by_topic) >= _KEPT:
                self._by_topic.clear()
            known = self._by_topic[where] = rule, codec
        return known

    def _accepting(self, where: tuple[str, str], opened: VerifiedPayload | None, format: int) -> Codec:
        """The codec that decodes it, if it may be decoded at all."""
        rule, codec = self._rule(where)
        if opened is None:
            if rule.require:
                self._refuse(where, NotTrusted("it is not signed", "not signed"))
            mask = codec.accepted if rule.keys is None else _JSON
            who = "who does not sign"
        else:
            who = f"the key {opened.key_id!r}"
            if rule.keys is not None and opened.key_id not in rule.keys:
                self._refuse(where, NotTrusted(f"{who} is not among the keys of this topic", "key not allowed"))
            mask = codec.accepted if rule.keys is None else codec.accepted & rule.keys[opened.key_id]
        if not mask >> format & 1:
            accepted = ", ".join(accept_names(mask))
            text = f"it is {format_name(format)}; accepted here from {who}: {accepted}"
            self._refuse(where, NotTrusted(text, "format"))
        return codec

    def _decoded(
        self, where: tuple[str, str], opened: VerifiedPayload | None, format: int, payload: bytes | memoryview
    ) -> Any:
        codec = self._accepting(where, opened, format)
        value = self._decode(codec, format, payload)
        if self._audit is not None:
            self._audit.decoded(*where, format)
        return value

    def _refuse(self, where: tuple[str, str], error: NotTrusted) -> NoReturn:
        """Count, say so once a minute, and raise."""
        self.refused[error.reason] += 1
        now = monotonic()
        topic = "/".join(filter(None, where))
        key = topic, error.reason
        if now >= self._logged.get(key, 0.0):
            if len(self._logged) >= _KEPT:
                self._logged.clear()
            self._logged[key] = now + _LOG_EVERY
            log.warning("payload of %r refused: %s (so far %d times)", topic, error, self.refused[error.reason])
        raise NotTrusted(f"payload of {topic!r} refused: {error}", error.reason) from None


def _numbered(answers: _Answers, kind: int, flags: int) -> int:
    """Return an answer's number: items are counted, so that none can be removed or inserted."""
    if kind not in (Kind.ITEM, Kind.END) or not flags & Flag.STREAM:
        return 0
    answers.items += 1
    return answers.items


def _serves(registration: Registration, address: Address) -> bool:
    """Return whether ``registration`` is for what ``address`` names: a server's own topic may be one name."""
    ours = registration.address
    if registration.group:
        return (address.exchange, address.topic) == (ours.exchange, ours.topic)
    names = ((ours.topic, ""), (ours.topic, ours.server), (f"{ours.topic}.{ours.server}", ""))
    return address.exchange == ours.exchange and (address.topic, address.server) in names
