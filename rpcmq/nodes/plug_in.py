"""A plugged-in node among the node types of a router: what it is given, and the bounds that it is held to.

Each entry into the node is one *step* (:meth:`PlugIn._step`). Whatever a step raises, and a bound that it breaks, takes
the node out: it is let go of, and its kinds, controls and views say why until it starts over. The router goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import inf, isnan
from traceback import format_exception
from typing import Any, TypeVar, cast

from greenlet import GreenletExit

from rpcmq.core.common.text import shorten
from rpcmq.core.router.actions import LogEvent
from rpcmq.core.router.mesh.node import Mesh
from rpcmq.core.router.model import Link
from rpcmq.core.router.node_type import NodeContext, NodeType
from rpcmq.core.router.roundrobin.node import RoundRobin
from rpcmq.core.router.view_rows import MAX_ROWS, View
from rpcmq.errors import Outcome, ProtocolError
from rpcmq.nodes.checked_values import answer_of, numbers_of, rows_of, stop_of
from rpcmq.nodes.context import Context
from rpcmq.nodes.guards import Guards
from rpcmq.nodes.keeper import Keeper
from rpcmq.nodes.loss_watch import LossWatch
from rpcmq.nodes.measure import MemoryBound
from rpcmq.nodes.node import Node
from rpcmq.nodes.open_asks import OpenAsks
from rpcmq.nodes.other_routers import OtherRouters
from rpcmq.nodes.overrun import Overrun, Steps
from rpcmq.nodes.passage import Passage
from rpcmq.nodes.peer import Peer
from rpcmq.nodes.plan import Plan, row_of
from rpcmq.nodes.watches import Watches
from rpcmq.wire import KIND_AT, Kind, body_of, size_of
from rpcmq.wire.bodies import MESH_TYPE, ErrorBody
from rpcmq.wire.body_fields import Body

__all__ = ["PlugIn"]

T = TypeVar("T")
#: Seconds between two ticks at least, whatever the node wants; and in multiples of the time that the last one took.
_LEAST_PAUSE, _PAUSE_FOR_WORK = 0.005, 10.0
_MESSAGE_OVERHEAD, _MAX_TRACEBACK = 600, 4_000
#: Exceptions by which others end the router's thread, in whatever it does.
_NOT_OF_NODES = (KeyboardInterrupt, GreenletExit)


class _Broken(Exception):
    """The node has just been taken out."""


class PlugIn(NodeType):
    """One plugged-in node."""

    def __init__(self, plan: Plan, steps: Steps, keeper: Keeper | None, context: NodeContext) -> None:
        self.plan = plan
        self._keeper = keeper
        self._steps = steps
        self._router = context
        settings = context.settings
        self._asks = OpenAsks(lambda: settings.default_timeout_seconds, lambda: settings.message_max_bytes)
        self._peers: dict[Link, Peer] = {}
        self._watches = Watches(context.links, self._passed)
        self._guards = Guards(context.links, self._stops)
        self._others = OtherRouters(plan.name, self._event)
        name, make = plan.name, plan.make
        self.kinds = dict.fromkeys(cast(Iterable[Kind], make.kinds), self._take)
        self.rights = {kind: word and f"{name}.{word}" for kind, word in make.kinds.items()}
        self.answered = frozenset(self.kinds)
        self.controls = {f"control.{name}.{each}": partial(self._control, each) for each in make.controls}
        self.views = {f"{name}.{each}": partial(self._view, each) for each in make.views}
        #: The reason why it is out; empty: it is not.
        self.out = ""
        self.out_since = 0.0
        #: Totals of all its lives.
        self.seconds = 0.0
        self.steps = self.failures = self.restarts = 0
        self._memory = MemoryBound(plan.max_bytes, context.now)
        self._node: Node | None = None
        self._due = inf
        if keeper is not None:
            keeper.on_kept = self._on_kept
        self._rests_until = -inf  # no tick before
        self._drains = False
        self.start(context.now)

    @property
    def node(self) -> Node | None:
        """The node; None: it is out."""
        return self._node

    @property
    def size_bytes(self) -> int:
        """Bytes that it holds, as they were measured last."""
        return self._memory.size_bytes

    # --- life --------------------------------------------------------------------------------

    def start(self, now: float) -> None:
        """Make the node, in place of the one that there was."""
        plan, self._node, self.out = self.plan, None, ""
        context = Context(
            self._router, self._watches, self._guards, self._others, self._keeper, plan.name, plan.max_bytes, now
        )
        try:
            self._node = self._step(now, plan.make, context, plan.settings)
            self._ask_deadline(now)
        except _Broken:
            pass  # it is out again, and the log says why

    def restart(self, now: float) -> None:
        """Let go of the node, whether it is out or not, and have it start over."""
        self.stop(now, "it is started over")
        self.restarts += 1
        self.start(now)

    def stop(self, now: float, why: str) -> None:
        """Take the node out."""
        if self._node is not None:
            try:
                self._step(now, self._node.close, now)
            except _Broken:
                return
        self._let_go(now, why)

    def _fail(self, now: float, error: BaseException) -> None:
        plan = self.plan
        self.failures += 1
        if isinstance(error, Overrun):
            why = f"a step has taken longer than max_seconds = {plan.max_seconds:g}"
        else:
            why = shorten(f"{type(error).__name__}: {self._text_of(str, error)}")
        text = f"node {plan.name} ({plan.origin}) is out: {why}; the router goes on without it"
        lines = self._text_of(lambda each: "".join(format_exception(each))[-_MAX_TRACEBACK:], error)
        self._router.act(
            LogEvent("node out", f"{text}\n{lines}", plan.name, {"node": plan.name, "type": plan.type_name, "why": why})
        )
        self._let_go(now, why)
        self.out_since = now

    def _text_of(self, show: Callable[[BaseException], str], error: BaseException) -> str:
        """The text of an exception of the node, whose methods may fail, too."""
        steps = self._steps
        steps.begin(self.plan.max_seconds)
        try:
            try:
                return show(error)
            finally:
                steps.end()
        except BaseException as other:
            steps.end()
            if isinstance(other, _NOT_OF_NODES):
                raise
            return f"(its text cannot be had: {type(other).__name__})"

    def _let_go(self, now: float, why: str) -> None:
        self.out, self.out_since = why, now
        self._node, self._due = None, inf
        self._memory.clear()
        for ask in self._asks.all():
            ask.refuse(self._says_out(), Outcome.NO_CONSUMER, node=self.plan.name)
        self._peers.clear()
        self._watches.clear()
        self._guards.clear()

    def _says_out(self) -> str:
        return shorten(f"node {self.plan.name} of router {self._router.settings.router_name} is out: {self.out}")

    # --- steps -------------------------------------------------------------------------------

    def _step(self, now: float, step: Callable[..., T], *args: Any, is_asked: bool = False) -> T:
        """Have the node do something.

        Args:
            is_asked: whether it is about a message, whose sender may be at fault.

        Raises:
            ProtocolError: the message is wrong.
            _Broken: the node was taken out.
        """
        steps = self._steps
        steps.begin(self.plan.max_seconds)
        self.steps += 1
        used = 0.0
        try:
            try:
                return step(*args)
            finally:
                used = steps.end()
        except BaseException as error:
            used = steps.end()
            if isinstance(error, _NOT_OF_NODES):
                raise
            if is_asked and isinstance(error, ProtocolError):
                # Not as it is: its text is made of code of the node, and its reason is a name in a table of the router.
                raise ProtocolError(self._text_of(str, error), f"node {self.plan.name}") from None
            self._fail(now, error)
            raise _Broken from None
        finally:
            self.seconds += used
            # As others are charged for work: a step is about a microsecond.
            self._router.turns.spend(int(used * 1e6))

    def _tell(self, now: float, step: Callable[..., object], *args: Any, is_asked: bool = False) -> None:
        """Do as :meth:`_step` where nobody is told of a fault of the node; and ask for its deadline."""
        try:
            self._step(now, step, *args, is_asked=is_asked)
            self._ask_deadline(now)
        except _Broken:
            pass  # the log says why

    def _ask_deadline(self, now: float) -> None:
        node = self._node
        if node is None:
            return
        due = self._step(now, node.next_deadline)
        if isinstance(due, bool) or not isinstance(due, int | float) or isnan(due):
            self._fail(now, TypeError(f"next_deadline() has returned {due!r:.100}, which is no time"))
            raise _Broken
        # One that is always due must not keep the router busy.
        self._due = max(float(due), self._rests_until)
        self._memory.look(now)

    # --- messages ----------------------------------------------------------------------------

    def _peer(self, link: Link) -> Peer:
        peer = self._peers.get(link)
        if peer is None:
            peer = self._peers[link] = Peer(link, self.plan.name)
        return peer

    def _take(self, now: float, link: Link, message: bytes) -> None:
        node = self._node
        ask = self._asks.open(now, link, self._peer(link), message, self.rights[message[KIND_AT]])
        if ask is None:
            return
        if node is None or self._drains:
            text = self._says_out() if node is None else "the router is shutting down"
            ask.refuse(text, Outcome.NO_CONSUMER if node is None else Outcome.DRAINING, node=self.plan.name)
            return
        self._memory.handed_bytes += size_of(message) + _MESSAGE_OVERHEAD
        try:
            self._step(now, node.take, now, ask, is_asked=True)
            self._ask_deadline(now)
        except ProtocolError:
            ask.drop()  # the router answers with it
            raise
        except _Broken:
            pass  # the ask was refused with the others

    def _control(self, name: str, now: float, link: Link, message: bytes) -> Body:
        node = self._node
        if node is None:
            return ErrorBody(outcome=Outcome.NO_CONSUMER, text=self._says_out(), details={"node": self.plan.name})
        arguments = body_of(message)
        arguments.pop("what", None)
        self._memory.handed_bytes += size_of(message)
        try:
            answer = self._step(now, answer_of, node, now, name, self._peer(link), arguments, is_asked=True)
            self._ask_deadline(now)
            return answer
        except _Broken:
            return ErrorBody(outcome=Outcome.NO_CONSUMER, text=self._says_out(), details={"node": self.plan.name})

    # --- views -------------------------------------------------------------------------------

    def _view(self, name: str, now: float) -> View:
        done: list[dict[str, Any]] = []
        view: dict[str, Any] = {name: done, "truncated": 0, "out": self.out}
        node = self._node
        if node is None:
            return view
        yield
        try:
            rows = self._step(now, lambda: iter(node.view(now, name)))
            while node is self._node and (some := self._step(now, rows_of, rows)):
                done += some
                if len(done) > MAX_ROWS:
                    view["truncated"] = len(done) - MAX_ROWS
                    del done[MAX_ROWS:]
                    break
                yield
        except _Broken:
            pass  # `out` says it
        view["out"] = self.out
        return view

    def row(self, now: float) -> dict[str, Any]:
        """The node as the view ``nodes`` shows it."""
        return row_of(self.plan, self._keeper) | {
            "state": "out" if self.out else "in",
            "why": self.out,
            "out_seconds": round(now - self.out_since, 3) if self.out else None,
            "open_asks": len(self._asks),
            "size_bytes": self.size_bytes,
            "steps": self.steps,
            "seconds": round(self.seconds, 6),
            "failures": self.failures,
            "restarts": self.restarts,
            "metrics": self._metrics(now),
        }

    def _metrics(self, now: float) -> dict[str, float]:
        node = self._node
        if node is None:
            return {}
        try:
            return self._step(now, numbers_of, node)
        except _Broken:
            pass  # `why` says it
        return {}

    # --- what the router tells ---------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Do what is due."""
        for ask in self._asks.expired(now):
            ask.drop()
            if self._node is not None:
                self._tell(now, self._node.ask_ended, now, ask)
        if self._node is not None and now >= self._due:
            self._rests_until, used = now + _LEAST_PAUSE, self.seconds
            self._tell(now, self._node.tick, now)
            self._rests_until = max(self._rests_until, now + _PAUSE_FOR_WORK * (self.seconds - used))
            self._due = max(self._due, self._rests_until)
        if self._node is not None and now >= self._memory.due:
            try:
                self._step(now, self._memory.step, now, self._node)
            except _Broken:
                pass  # the log says why

    def next_deadline(self) -> float:
        """The time of the next :meth:`tick` (monotonic seconds)."""
        due = min(self._due, self._asks.next_deadline())
        return due if self._node is None else min(due, self._memory.due)

    def link_ended(self, now: float, link: Link, reason: str) -> None:
        """Forget the asks of a process that is gone."""
        if link.queue_type == MESH_TYPE:
            return
        for ask in self._asks.of(link):
            ask.drop()
            if self._node is not None:
                self._tell(now, self._node.ask_ended, now, ask)
        peer = self._peers.pop(link, None)
        if self._node is not None and peer is not None:
            self._tell(now, self._node.peer_ended, now, peer, reason)

    def meet(self, others: Sequence[NodeType]) -> None:
        """Get to know the node type of calls and casts."""
        roundrobin = next(each for each in others if isinstance(each, RoundRobin))
        mesh = next(each for each in others if isinstance(each, Mesh))
        self._watches.meet(roundrobin)
        self._guards.meet(roundrobin)
        self._others.meet(mesh.node_news)
        if LossWatch.is_wanted_by(self.plan.make):
            roundrobin.losses.observers.append(LossWatch(self._router.links, self._peer, self._event))

    def _event(self, now: float, event: str, *about: Any, is_asked: bool = False) -> None:
        if self._node is not None:
            self._tell(now, getattr(self._node, event), now, *about, is_asked=is_asked)

    def _stops(self, passage: Passage) -> tuple[str, dict[str, Any]] | None:
        node = self._node
        if node is None:
            return None
        try:
            return self._step(passage.now, stop_of, node, passage)
        except _Broken:
            return None  # the log says why, and what it has stopped goes on

    def _passed(self, passage: Passage) -> None:
        if self._node is not None:
            self._memory.handed_bytes += _MESSAGE_OVERHEAD
            turns = self._router.turns
            spent = turns.spent
            self._tell(passage.now, self._node.passed, passage)
            turns.spent = spent  # whoever has sent it is not charged for a look at it

    def _on_kept(self, now: float, problem: str) -> None:
        self._event(now, "was_kept", problem)

    def begin_drain(self, now: float) -> None:
        """Nothing new is taken."""
        self._drains = True
        self._event(now, "begin_drain")

    def finish_drain(self, now: float) -> None:
        """Tell those who still wait."""
        for ask in self._asks.all():
            ask.refuse("the router has shut down", Outcome.DRAINING, node=self.plan.name)

    def close(self, now: float) -> None:
        """The router ends."""
        self._event(now, "close")
