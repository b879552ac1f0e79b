"""The node type of calls and casts: one of many consumers gets each, and answers go home."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from struct import Struct
from struct import error as StructError

from rpcmq.core.common.drops import drop_text
from rpcmq.core.router.actions import LogEvent
from rpcmq.core.router.dispatch_log import DispatchLog
from rpcmq.core.router.model import Handler, Link, Request
from rpcmq.core.router.node_type import NodeContext, NodeType
from rpcmq.core.router.roundrobin import views
from rpcmq.core.router.roundrobin.dispatch import Dispatch
from rpcmq.core.router.roundrobin.drain import fail_unfinished_calls
from rpcmq.core.router.roundrobin.gates import Gates
from rpcmq.core.router.roundrobin.losses import Losses
from rpcmq.core.router.roundrobin.observers import Observers
from rpcmq.core.router.roundrobin.purge import Controls
from rpcmq.core.router.roundrobin.registrations import Registrations
from rpcmq.core.router.roundrobin.request_streams import RequestStreams
from rpcmq.core.router.roundrobin.stuck import AskedFor
from rpcmq.errors import ProtocolError
from rpcmq.wire import Flag, Kind
from rpcmq.wire.bodies import MESH_TYPE

__all__ = ["RoundRobin"]

#: Of a SENT: flags, sequence, and all lengths as one.
_unpack_clock_stamp = Struct(">7xB20xQI").unpack


class RoundRobin(NodeType):
    """Calls, casts, streams, consumers, and the log of what became of them."""

    #: Whether another router asks for a call that runs when this one has gone: (link of the caller, request).
    outlives: Callable[[Link, Request], bool] = staticmethod(lambda link, request: False)
    #: The messages that may have been started, and that other routers are asked for.
    asked: Callable[[], Collection[AskedFor]] = staticmethod(lambda: ())

    def __init__(self, context: NodeContext) -> None:
        directory, links, drops = context.directory, context.links, context.drops
        self._context, self.directory = context, directory
        self.dispatch = dispatch = Dispatch(context.settings, links, directory, context.now)
        self.requests = requests = dispatch.requests
        self.observers = Observers(dispatch, context.guarded)
        self.gates = Gates(dispatch.deliveries)
        self.losses = Losses(context.guarded)
        requests.drops, requests.turns, requests.on_fault = drops, context.turns, context.faults.report
        requests.journal, context.faults.whereabouts = context.faults.journal, requests.whereabouts
        dispatch.deliveries.on_protocol_error = context.protocol_error
        self.log: DispatchLog | None = None
        if context.sink is not None:
            self.log = requests.log = DispatchLog(context.settings, context.sink, links, context.now, self._progress)
            links.stamps = True
        self.registrations = Registrations(context, dispatch)
        self.request_streams = RequestStreams(context.settings, requests, dispatch.streams)
        self.kinds = self._kinds()
        self.answered = {Kind.REQUEST, Kind.CAST, Kind.REGISTER, Kind.DECLARE}
        self.refusals = {Kind.REQUEST: dispatch.refuse, Kind.CAST: dispatch.refuse}
        self.views = {
            "topics": lambda now: views.topics(directory, now),
            "calls": lambda now: views.calls(links, now),
            "methods": lambda now: views.methods(directory, now),
            "dropped": lambda now: views.dropped(drops, now),
            "stuck": lambda now: views.stuck(directory, links, now, self.asked()),
        }
        self.controls = Controls(context, requests).table

    def _kinds(self) -> dict[Kind, Handler]:
        dispatch, streams = self.dispatch, self.request_streams
        return {
            Kind.REQUEST: dispatch.accept,
            Kind.CAST: dispatch.accept,
            Kind.REPLY: dispatch.reply,
            Kind.FAULT: dispatch.reply,
            Kind.END: dispatch.reply,
            Kind.ITEM: dispatch.streams.item,
            Kind.ALIVE: dispatch.streams.item,
            Kind.GRANT: dispatch.streams.grant,
            Kind.CANCEL: dispatch.cancel,
            Kind.HEDGE: dispatch.hedging.begin,
            Kind.REQUEST_ITEM: streams.item,
            Kind.REQUEST_END: streams.end,
            Kind.REQUEST_GRANT: streams.grant,
            Kind.REQUEST_STOP: streams.stop,
            Kind.SETTLE: dispatch.settlements.settle,
            Kind.CLOCK_STAMP: _note_clock_stamp,
            Kind.REGISTER: self.registrations.register,
            Kind.UNREGISTER: self.registrations.unregister,
            Kind.DECLARE: self.registrations.declare,
            **dispatch.returns.kinds,
        }

    def meet(self, others: Sequence[NodeType]) -> None:
        """Write down which back ends disagree."""
        self.dispatch.hedged_ends.on_disagreement = self._note_disagreement

    def tick(self, now: float) -> None:
        """End what has expired, and forget topics that nobody uses."""
        self._context.guarded(now, self.dispatch.tick)
        self._context.guarded(now, self.directory.tick)

    def release(self, now: float) -> None:
        """Take what was held for the recovery window, and write down what there is."""
        self._context.guarded(now, self._release_held)
        self._context.guarded(now, self._log_drops)
        if self.log is not None:
            self._context.guarded(now, self.log.tick)

    def _release_held(self, now: float) -> None:
        recovery = self.dispatch.recovery
        try:
            for link, held in recovery.release_held(now):
                # Validated and acknowledged when they came.
                while held := held[self._context.handle(now, link, held) :]:
                    self._context.turns.spent = 0
        finally:
            recovery.released()

    def _log_drops(self, now: float) -> None:
        for drop, count in self.requests.drops.due(now):
            fields = {**drop._asdict(), "count": count} if drop is not None else {"count": count}
            self._context.act(LogEvent("dropped", drop_text(drop, count), "", fields))

    def next_deadline(self) -> float:
        """The time at which something expires, is released or is to be written (monotonic seconds)."""
        due = self.directory.next_deadline()
        if self.log is not None:
            due = min(due, self.log.next_deadline())
        calls = self.dispatch.next_deadline()
        return due if calls is None else min(due, calls)

    def link_taken(self, now: float, link: Link, messages: list[bytes]) -> None:
        """Senders need not keep the casts among ``messages``."""
        if link.queue_type == MESH_TYPE:
            return  # a router has them, no consumer yet
        self.dispatch.settlements.taken(now, link, messages)

    def link_changed(self, now: float, link: Link) -> None:
        """Its consumers consume again, and get what waits."""
        self.losses.link_changed(now, link)
        if link.lapsed_consumers and link.is_responsive:
            self.registrations.restore(now, link)
        for consumer in link.consumers.values():
            self.dispatch.deliveries.deliver_waiting(now, consumer)

    def link_lapsed(self, now: float, link: Link) -> None:
        """Deliver elsewhere the messages that its consumers had, until they come back."""
        if link.queue_type == MESH_TYPE:
            self.dispatch.departures.router_away(now, link)
            return
        self.losses.link_lapsed(now, link)
        link.lapsed_consumers = [c for c in link.consumers.values() if not c.stopping]
        self.registrations.end_all(now, link, "connection lost")

    def link_has_room(self, now: float, link: Link) -> None:
        """Its consumers get what waits."""
        self.dispatch.has_room(now, link)

    def link_ended(self, now: float, link: Link, reason: str) -> None:
        """Its consumers are gone, and nobody waits for its calls."""
        self.losses.link_ended(now, link, reason)
        self.registrations.end_all(now, link, reason)
        self._context.guarded(now, self.dispatch.departures.caller_gone, link)
        if self.log is not None:
            self.log.caller_gone(link)

    def begin_drain(self, now: float) -> None:
        """Calls that nobody has yet go back to their callers."""
        self.dispatch.begin_drain(now)

    def refuse_nested_work(self) -> None:
        """Calls and casts of running handlers are refused from now on, too."""
        self.dispatch.refuses_nested_work = True

    def finish_drain(self, now: float) -> None:
        """The callers of what still runs are told, and senders which casts they need not keep."""
        fail_unfinished_calls(now, self._context.links, self.requests, self.outlives)
        self.requests.receipts.tell_all()

    def close(self, now: float) -> None:
        """Write down in the dispatch log what is left."""
        if self.log is not None:
            self.log.close(now, self.dispatch.unsettled())
            self.log = self.requests.log = None

    def _note_disagreement(self, request: Request, winner: str, other: str) -> None:
        destination = request.destination
        text = f"two back ends disagree about {destination.method!r} of {destination.name!r}: {winner} and {other}"
        fields = {"topic": destination.name, "method": destination.method, "winner": winner, "other": other}
        self._context.act(LogEvent("disagreement", text, other, fields))

    def _progress(self) -> tuple[int, int]:
        return self.requests.last_number, self.requests.calls_in_flight


def _note_clock_stamp(now: float, link: Link, message: bytes) -> None:
    """The process's clock as it sends the answers that follow."""
    try:
        flags, sent_us, lengths = _unpack_clock_stamp(message)
        if flags & Flag.DETACHED or lengths:
            raise StructError
    except StructError:
        raise ProtocolError("CLOCK_STAMP must be a header only", "length") from None
    link.sent_us = sent_us
