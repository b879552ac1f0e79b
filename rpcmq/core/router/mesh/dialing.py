"""The dialling side of the handshake: connections that this router has asked for, until a link has come of them."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from itertools import count
from math import inf

from rpcmq.core.router.access_control import Admission, Refusal
from rpcmq.core.router.actions import DIALED, Answer, Dial, Disconnect
from rpcmq.core.router.mesh.alarm import Alarm
from rpcmq.core.router.mesh.heartbeats import Heartbeats
from rpcmq.core.router.mesh.neighbours import told_apart
from rpcmq.core.router.mesh.part import MeshContext
from rpcmq.core.router.mesh.peerings import Peering, Peerings
from rpcmq.core.router.mesh.problems import Problems
from rpcmq.core.router.mesh.resuming import Resuming
from rpcmq.core.router.mesh.targets import Target
from rpcmq.errors import ProtocolError
from rpcmq.wire import KIND_AT, Kind
from rpcmq.wire.bodies import RefusedBody, WelcomeBody
from rpcmq.wire.mesh_bodies import MAX_INCARNATION, MeshIdentity

__all__ = ["Dialing"]

#: Pause between two attempts (seconds) to connect to a router to which others carry the messages meanwhile.
_SHORTCUT_PAUSE = 5.0
#: A link that lasted less (seconds) is not dialled again at once.
_SHORT = 1.0
#: Refusals that do not go away by themselves.
_LASTING = frozenset({"self", "other-mesh", "id-taken", "queue-type", "key", "left"})
#: Refusals because of a link that there is already, or will be soon.
_LINKED = frozenset({"already-linked", "crossing"})
#: Most connections at a time that are being made, direct ones and others; twice as many to routers that are known.
_AT_ONCE = 32
#: Seconds in which an answer to a probe shows that a router lives.
_PROOF_SECONDS = 5.0


class Dialing:
    """Dials the targets of ``context``.

    Args:
        on_greeted: called with the time when a HELLO was answered, or will not be.
    """

    def __init__(
        self,
        context: MeshContext,
        peerings: Peerings,
        heartbeats: Heartbeats,
        problems: Problems,
        on_greeted: Callable[[float], None],
        alarm: Alarm,
    ) -> None:
        self._alarm = alarm
        self._context = context
        self._node = context.node
        self._targets = context.targets
        self._peerings = peerings
        self._heartbeats = heartbeats
        self._problems = problems
        self._on_greeted = on_greeted
        self._numbers = count(1)
        #: Connections without a link; and those of them on which a link is to go on.
        self._dials: dict[bytes, Target] = {}
        self._resuming = Resuming(context, self._dials)
        self._next_due = inf
        self._targets.on_due, self._targets.on_closed = self._due_at, self._stop

    # --- when to dial ------------------------------------------------------------------------

    def _due_at(self, due: float) -> None:
        self._next_due = min(self._next_due, due)
        self._alarm.by(due)

    def next_deadline(self) -> float:
        """The time of the next :meth:`tick` (monotonic seconds)."""
        return self._next_due

    def tick(self, now: float) -> None:
        """Dial whom it is time to, and give up what takes too long."""
        if now < self._next_due:
            return
        self._next_due = inf
        for route, target in list(self._dials.items()):
            if target.has_greeted and now >= target.deadline:
                direct = f"{target.url}: connected, but nothing there"
                where = self._context.way_failed(target.id) if target.is_relayed else direct
                self._fail(now, route, "no-answer", f"{where} has answered HELLO within {target.greeting_seconds:g} s")
        for target in self._targets.in_turn():
            if target.route is not None:
                self._next_due = min(self._next_due, target.deadline if target.has_greeted else inf)
            elif self._is_wanted(target):
                if now >= target.due:
                    self._dial(now, target)
                else:
                    self._next_due = min(self._next_due, target.due)

    def _is_wanted(self, target: Target) -> bool:
        """Return whether ``target`` is to be dialled: there is no link to its router, or one that it can resume."""
        peering = self._peerings.of_router(target.id) if target.id else None
        if target.is_relayed and self._context.route_to(target.id) is None:
            return False
        if peering is not None:
            return self._targets.closed != "left" and self._resuming.is_possible(peering, target)
        if self._targets.closed or self._context.has_left(target.id):
            return False
        most = _AT_ONCE * (2 if target.is_known else 1)
        is_free = sum(each.is_relayed == target.is_relayed for each in self._dials.values()) < most
        return is_free and self._peerings.has_room(target.is_relayed)

    def _stop(self) -> None:
        """Give up connections that are being made, of which no link can come any more."""
        for route, target in list(self._dials.items()):
            if not self._is_wanted(target):
                self._forget(route)
                target.route, target.has_greeted = None, False
                self._node.act(Disconnect(route))

    def dismiss(self, now: float, target: Target) -> None:
        """Dial ``target``, which operators have named, no more; a link that it has led to stays."""
        is_linked = self._peerings.of_target(target) is not None
        if target.route is not None and not is_linked:
            self._drop(now, target.route, target)
        self._targets.dismiss(target, is_linked)
        self._problems.solved(*target.urls)

    def _dial(self, now: float, target: Target) -> None:
        target.route = DIALED + b"%d" % next(self._numbers)
        target.has_greeted = False
        self._dials[target.route] = target
        if target.is_relayed:
            # Not that of any connection of an earlier life of this router.
            number = blake2b(self._node.new_token().encode(), digest_size=8).digest()
            self._node.relayed.open(target.route, target.id, int.from_bytes(number))
            self.connected(now, target.route)
        else:
            self._node.act(Dial(target.route, target.url, target.server_key))

    def greeted_at(self, id: int) -> float:
        """The time of the last HELLO without an answer that may have gone to the router ``id``; -infinite: none has."""
        unanswered = (each for each in self._dials.values() if each.has_greeted and each.id in (0, id))
        return max((each.deadline - each.greeting_seconds for each in unanswered), default=-inf)

    def link_ended(self, now: float, peering: Peering) -> None:
        """The link of ``peering``, which has led to ``target``, has ended."""
        target = peering.target
        if target is not None and target.route in (None, peering.route):
            # Else a newer connection of the same target is about to take its place.
            target.route = None
            self._again(now, target, peering)
        for target in self._targets:
            if target.id == peering.identity.id and target.route is None:
                self._due_at(max(now, target.due))

    def _again(self, now: float, target: Target, peering: Peering) -> None:
        if now - peering.began < _SHORT:
            self._targets.failed(now, target)
        else:
            target.failures = 0
            target.due = now
            self._due_at(now)

    # --- what the shell tells ----------------------------------------------------------------

    def connected(self, now: float, route: bytes) -> None:
        """The connection stands: say HELLO."""
        target = self._dials.get(route)
        if target is None:
            return
        peering = self._peerings.of_router(target.id) if target.id else self._peerings.of_target(target)
        if peering is not None and not self._resuming.is_possible(peering, target):
            peering = None
        if peering is not None:
            if any(each.has_greeted and each.id == target.id for each in self._dials.values()):
                # Of two HELLOs that resume one session nobody could say which is the later one.
                self._drop(now, route, target)
                return
            self._resuming.begin(now, route, peering)
        target.has_greeted, target.deadline = True, now + target.greeting_seconds
        self._due_at(target.deadline)
        self._node.act(Answer(route, self._peerings.hello(peering)))

    def is_resuming(self, peering: Peering) -> bool:
        """Return whether the link of ``peering`` is to go on where this router has said HELLO."""
        return bool(self._resuming.routes_of(peering))

    def goes_on_elsewhere(self, now: float, peering: Peering) -> None:
        """The link of ``peering`` goes on where the other router has dialled: close what was dialled for it here."""
        for route in self._resuming.routes_of(peering):
            self._drop(now, route, self._dials[route])
        if peering.target is not None and peering.target.route not in self._dials:
            peering.target.route = None
        peering.target = None

    def lost(self, now: float, route: bytes, reason: str) -> None:
        """A connection is gone, or could not be had; its link, if it had one, is away."""
        target = self._forget(route)
        if target is not None:
            text = f"{target.url}: {reason or 'the connection was closed before this router was welcome'}"
            self._give_up(now, target, "unreachable", text)
            return
        for peering in self._peerings:
            if peering.route == route:
                peering.route = None
                if peering.target is not None:
                    peering.target.route = None
                    self._again(now, peering.target, peering)
                return

    def message(self, now: float, route: bytes, message: bytes) -> None:
        """Handle what has come on a connection without a link, or a HELLO on one with a link."""
        target = self._dials.get(route)
        if target is None:
            link = self._node.links.routes.get(route)
            if link is not None:
                error = ProtocolError("a router that was dialled is the one that welcomes, and says no HELLO", "kind")
                self._node.protocol_error(now, link, message, error)
            return
        try:
            if message[KIND_AT] == Kind.WELCOME:
                self._welcomed(now, route, target, message)
            elif message[KIND_AT] == Kind.REFUSED:
                self._refused(now, route, target, RefusedBody.of(message))
            else:
                raise ProtocolError(f"kind {message[KIND_AT]:#04x} in answer to HELLO", "kind")
        except ProtocolError as error:
            text = f"{target.url}: this is no router that knows a mesh: {error}"
            self._fail(now, route, "no-router", text, is_rare=not target.is_relayed)

    # --- answers to HELLO --------------------------------------------------------------------

    def _forget(self, route: bytes) -> Target | None:
        """Return the target of a connection that is none without a link any more."""
        self._resuming.end(route)
        return self._dials.pop(route, None)

    def _fail(self, now: float, route: bytes, reason: str, text: str, is_rare: bool = False) -> None:
        target = self._forget(route)
        self._node.act(Disconnect(route))
        if target is not None:
            self._give_up(now, target, reason, text, is_rare)

    def _give_up(self, now: float, target: Target, reason: str, text: str, is_rare: bool = False) -> None:
        linked = self._peerings.of_router(target.id)
        is_direct = linked is not None and not linked.neighbour.is_relayed
        is_needed = linked is None or not linked.is_connected or not (is_direct or target.is_relayed)
        if is_needed and not self._targets.closed:
            self._problems.note(now, target.url, reason, text)
        self._failed(now, target, is_rare)
        self._due_at(now)  # there is room for another one
        self._on_greeted(now)

    def _drop(self, now: float, route: bytes, target: Target) -> None:
        """Close a connection of which no link is needed."""
        self._forget(route)
        self._node.act(Disconnect(route))
        self._problems.solved(target.url)
        self._failed(now, target)
        self._on_greeted(now)

    def _failed(self, now: float, target: Target, is_rare: bool = False) -> None:
        self._targets.failed(now, target, is_rare)
        peering = self._peerings.of_router(target.id) if target.id else None
        if peering is not None and peering.neighbour.is_relayed and not target.is_relayed:
            # There is no hurry: its messages arrive.
            target.due = max(target.due, now + _SHORTCUT_PAUSE)

    def _refused(self, now: float, route: bytes, target: Target, refused: RefusedBody) -> None:
        reason, own = refused.reason, self._context.own
        if refused.mesh:
            other = MeshIdentity.parse(refused.mesh)
            target.id = other.id if other.mesh == own.mesh and other.id != own.id else 0
        known = refused.incarnation
        if reason == "stale-incarnation" and known is not None and own.incarnation <= known < MAX_INCARNATION:
            own.incarnation = known + 1
            self._context.own_changed(now)
            self._drop(now, route, target)
            target.due = now
            self._due_at(now)
        elif reason in _LINKED:
            self._drop(now, route, target)
        elif reason == "queue-type":
            text = f"{target.url}: the router there is of an older version, which knows no mesh: update it"
            self._fail(now, route, "old-version", text, is_rare=True)
        elif reason == "self":
            text = f"{target.url} leads to this router itself: take it out of its peers"
            self._fail(now, route, "self", text, is_rare=not self._has_more_urls(target))
        else:
            text = f"{target.url}: the router there refuses a link: {refused.text}"
            is_lasting = reason in _LASTING
            self._fail(now, route, reason if is_lasting else "refused", text, is_rare=is_lasting)

    def _has_more_urls(self, target: Target) -> bool:
        return target.failures + 1 < len(target.urls)

    def _admit(self, target: Target, other: MeshIdentity) -> Admission:
        """Check whether ``other`` may be linked to, whose key is that with which it was dialled.

        Raises:
            Refusal: it may not.
        """
        own = self._context.own
        if other.mesh != own.mesh:
            text = f"the router there belongs to the mesh {other.mesh!r}, this one to {own.mesh!r}"
            raise Refusal("other-mesh", text)
        if other.id == own.id:
            raise Refusal("id-taken", told_apart(own, other))
        admission = self._node.links.access.admit(target.server_key, other.name)
        admission.check_router(other.id)
        return admission

    def _welcomed(self, now: float, route: bytes, target: Target, message: bytes) -> None:
        said = WelcomeBody.of(message)
        if not said.mesh:
            raise ProtocolError("its WELCOME has no `mesh`", "body")
        other = MeshIdentity.parse(said.mesh)
        try:
            admission = self._admit(target, other)
        except Refusal as refusal:
            self._fail(now, route, refusal.reason, f"{target.url}: {refusal}", is_rare=True)
            return
        target.id = other.id
        existing = self._peerings.of_router(other.id)
        resuming = self._resuming.end(route)
        if existing is not None and existing is resuming and not said.resumed:
            reason = "started over" if existing.is_with(other) else "its next life has come"
            self._node.links.end(now, existing.link, reason)
            existing = None
        if said.resumed and resuming is None:
            raise ProtocolError("it resumes a session, which this router has not asked for", "state")
        if said.resumed and resuming is not existing:
            # What was to be resumed has ended here since, and there may be a new one.
            self._drop(now, route, target)
        elif said.resumed and existing is not None:
            self._resumed(now, route, target, existing, said, other)
        elif existing is None or self._makes_way(now, route, target, existing, other):
            self._dials.pop(route, None)
            target.has_greeted = False
            self._peerings.dialed(now, target, other, said.token, admission)
            self._heartbeats.start(now)
            self._problems.solved(*target.urls)
            self._due_at(now)  # there is room for another one
            self._on_greeted(now)

    def _resumed(
        self,
        now: float,
        route: bytes,
        target: Target,
        peering: Peering,
        said: WelcomeBody,
        other: MeshIdentity,
    ) -> None:
        if not peering.link.can_resume(said.received):
            raise ProtocolError("it resumes a session that this router does not have", "state")
        self._dials.pop(route, None)
        target.has_greeted = False
        former, peering.target = peering.target, target
        if former is not None and former is not target and former.route not in self._dials:
            # Else it is just being dialled again.
            former.route, former.due = None, now + _SHORTCUT_PAUSE
            self._due_at(former.due)
        self._peerings.resume(now, peering, route, said.received, is_dialed=True)
        self._problems.solved(*target.urls)
        self._on_greeted(now)

    def _makes_way(self, now: float, route: bytes, target: Target, existing: Peering, other: MeshIdentity) -> bool:
        """Return whether the link that there is ends in favour of the one that ``target`` has led to."""
        same_life = existing.is_with(other)
        if existing.is_connected and same_life:
            if existing.target is not None or self._context.own.id > other.id:
                # Both sides have dialled, and the other one's id is the lower: its connection stays.
                self._drop(now, route, target)
                return False
            self._node.links.end(now, existing.link, "both sides have dialled: the other connection stays")
            return True
        if existing.is_connected:
            if now - existing.answered_at < _PROOF_SECONDS and not existing.probe:
                text = f"{target.url}: {told_apart(existing.identity, other)}"
                self._fail(now, route, "id-taken", text, is_rare=True)
            else:
                self._heartbeats.probe(now, existing)
                self._drop(now, route, target)
                target.due = now + _SHORT
            return False
        reason = "started over" if same_life else "its next life has come"
        self._node.links.end(now, existing.link, reason)
        return True
