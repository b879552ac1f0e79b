"""WELCOME of a router that does not know this process: which messages are sent again, and which calls end.

====================================  ====================================================================
message                               becomes
====================================  ====================================================================
cast or event, sent or not            sent again (``casts.Casts.take_resendable`` tells which)
idempotent call, query                sent again, with its remaining time
call that the router did not accept   sent again, with its remaining time
call that was never sent              sent, with its remaining time
question to a plugged-in node         sent if it never was; else ended with ``LinkLost``: the node may have acted
any other call                        in a mesh whose routers adopt calls: sent again, and asked for before it is
                                      started; else ended with ``LinkLost``: it may have run
message above the router's limit      refused: the router would cut each connection that sends it
====================================  ====================================================================

In such a mesh all that is sent again says how many routers it was sent to before: the router that has it now is asked
by nobody else, and consumers start it for no earlier one (:mod:`rpcmq.core.process.witness`).

That a cast is neither lost nor doubled by this takes the router, too: it holds what is sent again until consumers have
said which casts they had from its previous life (:mod:`rpcmq.core.router.roundrobin.restart_recovery`).
"""

from __future__ import annotations

from collections.abc import Mapping

from rpcmq.core.process.call import Call
from rpcmq.core.process.call_table import CallTable
from rpcmq.core.process.casts import RETAINED_KINDS, Casts
from rpcmq.core.process.hedge import send_hedge
from rpcmq.core.process.mesh_moves import for_next_owner
from rpcmq.core.process.read_streams import takes_byte_credit
from rpcmq.core.process.sent_streams import has_begun
from rpcmq.core.process.uplink import Uplink
from rpcmq.core.process.welcome import Welcome
from rpcmq.errors import LinkLost, Outcome, error_for
from rpcmq.wire import (
    FIRST_NODE_KIND,
    KEY,
    KIND_AT,
    LOW_FLAGS_AT,
    NO_TTL,
    STAMP,
    Flag,
    Kind,
    payload_of,
    with_flag,
    with_ttl,
    without_flag,
)

__all__ = ["resend"]

#: Routers that a call is sent to at most: more cannot be told apart.
_MOST_OWNERS = 255
_CALLS = (Kind.REQUEST, Kind.QUERY, Kind.INTRODUCE, Kind.DECLARE)
#: Messages with the key of a call that was sent before.
_ABOUT_CALLS = (Kind.GRANT, Kind.CANCEL, Kind.REQUEST_ITEM, Kind.REQUEST_END)


def resend(now: float, welcome: Welcome, uplink: Uplink, table: CallTable, casts: Casts) -> None:
    """Send again or end what was in flight when the last session ended."""
    unsent = {message[KEY] for message in welcome.unsent if message[KIND_AT] not in _ABOUT_CALLS}
    is_adopted = uplink.moves.is_adopted_by(welcome)
    again = casts.take_resendable(welcome, unsent, table.open)
    before = dict(table.open)
    if not welcome.same_handle:
        table.rekey(uplink.with_current_origin)
    for message in again.values():
        uplink.send(message)
    for key, call in before.items():
        if key not in unsent:
            _resend_or_fail(now, key, call, again, uplink, table, casts, is_adopted)
    table.not_accepted.clear()
    for message in welcome.unsent:
        is_call = message[KIND_AT] in _CALLS or message[KIND_AT] >= FIRST_NODE_KIND
        waiting = before.get(message[KEY]) if is_call else None
        if waiting is not None:
            _send(now, waiting, uplink)
        elif message[KIND_AT] in RETAINED_KINDS and message[KEY] not in again:
            uplink.send(uplink.with_current_origin(message))
    _refuse_too_large(uplink, table, casts)
    casts.recount()


def _resend_or_fail(
    now: float, key: bytes, call: Call, again: Mapping[bytes, bytes], uplink: Uplink, table: CallTable, casts: Casts,
    is_adopted: bool,
) -> None:  # fmt: skip
    """Send ``call``, which had ``key``, again if that cannot run it twice."""
    kind = call.message[KIND_AT]
    may_run_twice = call.flags & Flag.IDEMPOTENT and not has_begun(call)
    if kind == Kind.REQUEST and not may_run_twice and key not in table.not_accepted:
        if is_adopted and not call.flags & Flag.STREAM and call.message[STAMP][0] < _MOST_OWNERS:
            call.message = for_next_owner(call.message)
            _send(now, call, uplink)
            return
        what = "its stream under way" if has_begun(call) else "in flight"
        text = f"the router went away with the call to {call.address!r} {what}; it may have run"
        table.fail(call, LinkLost(text, {"topic": call.address, "started": "unknown"}))
    elif kind >= FIRST_NODE_KIND:
        text = f"the router went away while its {call.address} was asked; it may have acted"
        table.fail(call, LinkLost(text, {"started": "unknown"}))
    elif kind in _CALLS:
        if is_adopted and call.message[LOW_FLAGS_AT] & (Flag.RESENT | Flag.IDEMPOTENT):
            # The last one has asked for it, before it gave it back; or it may have it still, and offer it later.
            call.message = for_next_owner(call.message)
        _send(now, call, uplink)
    elif kind in RETAINED_KINDS and key not in again:
        # The router had it, and died before it confirmed that to the waiter.
        casts.retain(call.message)
        uplink.send(for_next_owner(call.message) if is_adopted else with_flag(call.message, Flag.RESENT))


def _refuse_too_large(uplink: Uplink, table: CallTable, casts: Casts) -> None:
    """Remove messages that exceed this router's lower limit: it would cut each connection that sends them."""
    outbox, most = uplink.outbox, uplink.max_message_bytes
    large = [message for message in outbox if message[LOW_FLAGS_AT] & Flag.DETACHED and len(payload_of(message)) > most]
    if not large:
        return
    refused = set(map(id, large))
    outbox[:] = [message for message in outbox if id(message) not in refused]
    for message in large:
        casts.forget(message[KEY])
        text = f"payload of {len(payload_of(message))} bytes exceeds the router's message.max_bytes = {most}"
        error = error_for(Outcome.PROTOCOL, text, {"limit": "message.max_bytes"})
        call = table.open.get(message[KEY])
        if call is not None:
            table.fail(call, error)
        elif message[KIND_AT] in RETAINED_KINDS:
            casts.refuse(message, error)


def _send(now: float, call: Call, uplink: Uplink) -> None:
    """Send the message of ``call``, which has waited here, with its remaining time."""
    if call.timeout is not None and not call.flags & Flag.STREAM:
        left = max(1, int((call.sent_at + call.timeout - now) * 1000))
        call.message = with_ttl(call.message, min(left, NO_TTL - 1))
    if call.flags & Flag.BYTE_CREDIT and not takes_byte_credit(uplink):
        # It was started before this router was known.
        call.flags &= ~Flag.BYTE_CREDIT
        call.message = without_flag(call.message, Flag.BYTE_CREDIT)
    uplink.send(call.message)
    send_hedge(uplink, call)
