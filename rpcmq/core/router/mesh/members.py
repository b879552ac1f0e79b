"""The members of the mesh: each router tells all others of itself, and all processes which routers there are.

* A router that is heard of is dialled, so that each is linked to each (:mod:`rpcmq.core.router.mesh.targets`), directly
  or over others (:mod:`rpcmq.core.router.mesh.relays`). Records pass over direct links only.
* A change is told after 10 ms, with all others of that time. What is unchanged is told again every half minute, and
  what was not for a minute and a half is forgotten.
* A router that leaves says so before it ends its links: nobody dials it any more.
* The word of a neighbour about itself counts, and nobody else's about it: whatever a router tells of others cannot
  harm a link that stands.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from math import inf

from rpcmq.config.values import is_connect_url
from rpcmq.core.common.text import shorten
from rpcmq.core.router.actions import LogEvent
from rpcmq.core.router.mesh.alarm import Alarm
from rpcmq.core.router.mesh.neighbours import Neighbour, told_apart
from rpcmq.core.router.mesh.part import MeshContext, MeshPart
from rpcmq.core.router.mesh.peerings import as_body
from rpcmq.core.router.mesh.process_news import ProcessNews
from rpcmq.core.router.mesh.targets import relay_name
from rpcmq.core.router.model import Link
from rpcmq.errors import ProtocolError
from rpcmq.wire import Kind, pack, size_of
from rpcmq.wire.mesh_bodies import MAX_INCARNATION, MAX_NEIGHBOURS, MAX_ROUTERS, MemberBody, MembersBody
from rpcmq.wire.query_bodies import MeshForgetQuery, MeshJoinQuery, MeshStateAnswer

__all__ = ["Members"]

#: Seconds in which changes are gathered.
_GATHER = 0.01
#: Seconds after which a router tells of itself again, and after which one is forgotten that was not heard of.
_REFRESH, _FORGET = 30.0, 90.0
#: Seconds that a router leaves to its neighbours to hear that it leaves.
_LEAVING = 0.1
#: Routers in one message: of the largest more would exceed the limit of a JSON body.
_IN_ONE_MESSAGE = 8
#: Turns' steps of each, and bytes of their message for one more: reading takes most of the time.
_STEPS, _BYTES_OF_A_STEP = 20, 64


class Members(MeshPart):
    """Knows the routers of the mesh."""

    def __init__(self, context: MeshContext) -> None:
        self._context = context
        self._node = context.node
        self._links = context.node.links
        self.table = context.members
        #: The neighbours that others were told of last.
        self._told_neighbours: tuple[int, ...] = ()
        self._sequence = 0
        #: Ids of routers of which something is to be told, with the neighbour that has told it.
        self._news: dict[int, Neighbour | None] = {}
        self._news_at = self._leaves_at = inf
        self._refresh_at = self._forget_at = inf
        self._alarm = Alarm()
        self._processes = ProcessNews(context, self.table, self._alarm)
        self.kinds = {Kind.MEMBERS: self._members}
        context.incarnation_of = self._incarnation_of
        context.has_left = self._has_left
        context.own_changed = self._changed
        context.routers_with = self._processes.routers

    # --- what others ask ---------------------------------------------------------------------

    def _incarnation_of(self, id: int) -> int:
        member = self.table.get(id)
        return member.said.incarnation if member is not None else 0

    def name_of(self, id: int) -> str:
        """Return the name of the router ``id``, or its id as text if it is not known."""
        member = self.table.get(id)
        return member.said.name if member is not None else str(id)

    def _has_left(self, id: int) -> bool:
        member = self.table.get(id)
        return member is not None and member.said.left

    def join(self, now: float, url: str, server_key: str = "") -> None:
        """Be a member (again), and dial ``url``."""
        self._leaves_at = inf
        targets = self._context.targets
        if targets.closed == "left":
            targets.closed = ""
            self._changed(now)
        targets.configure(now, url, server_key)
        self._processes.changed(now)

    def leave(self, now: float) -> int:
        """Tell everybody that this router leaves the mesh, and end its links; return how many routers are told."""
        self._context.targets.close("left")
        self._changed(now)
        self._tell(now)
        for neighbour in self._context.neighbours:
            neighbour.link.send_last(pack(Kind.GOODBYE))
        self._leaves_at = now + _LEAVING
        self._alarm.by(self._leaves_at)
        return len(self._context.neighbours)

    def join_on_demand(self, now: float, link: Link, message: bytes) -> MeshStateAnswer:
        """Handle the control ``control.mesh.join``."""
        query = MeshJoinQuery.of(message)
        if not is_connect_url(query.url):
            raise ProtocolError(f"{query.url!r} is no url of a router, as tcp://HOST:PORT is", "query")
        if query.url in self._context.own.urls:
            raise ProtocolError(f"{query.url} is this router itself", "query")
        if len(self._context.targets.configured) >= MAX_ROUTERS:
            text = f"{MAX_ROUTERS} urls of routers are dialled already: `rpcmq mesh` lists them"
            raise ProtocolError(text, "query")
        if self._context.targets.closed == "draining":
            raise ProtocolError("this router is shutting down", "query")
        answer = self._state()
        self._log("joins", f"joins the mesh by {query.url}", link)
        self.join(now, query.url, query.server_key)
        return answer

    def forget_on_demand(self, now: float, link: Link, message: bytes) -> MeshStateAnswer:
        """Handle the control ``control.mesh.forget``."""
        url = MeshForgetQuery.of(message).url
        targets = self._context.targets.dismissible()
        if url not in targets:
            known = shorten(", ".join(targets)) or "none"
            raise ProtocolError(f"{url} is none of the urls that this router may dial no more: {known}", "query")
        self._log("forgets", f"dials {url} no more", link)
        self._context.dismiss(now, targets[url])
        for member in list(self.table):
            if url in member.said.urls:
                self._learn(now, member.said)
        return self._state()

    def leave_on_demand(self, now: float, link: Link, message: bytes) -> MeshStateAnswer:
        """Handle the control ``control.mesh.leave``."""
        answer = self._state()
        self._log("leaves", "leaves the mesh", link)
        self.leave(now)
        return answer

    def _log(self, what: str, text: str, link: Link) -> None:
        self._node.act(LogEvent(f"router {what}", f"{text}, as {link.identity} wants", link.identity))

    def _state(self) -> MeshStateAnswer:
        context = self._context
        return MeshStateAnswer(was_member=context.targets.closed != "left", linked=len(context.neighbours))

    # --- this router -------------------------------------------------------------------------

    def own(self) -> MemberBody:
        """Return what this router tells of itself."""
        context = self._context
        return MemberBody(
            **vars(as_body(context.own)),
            sequence=self._sequence,
            neighbours=self._usable_neighbours(),
            left=context.targets.closed == "left",
            processes=context.processes,
            queue_server=context.own.queue_server,
        )

    def _usable_neighbours(self) -> tuple[int, ...]:
        """The ids of the routers by way of this one others can be reached."""
        usable = [each.identity.id for each in self._hops() if each.link.is_responsive]
        return tuple(sorted(usable)[:MAX_NEIGHBOURS])

    def _hops(self) -> Iterator[Neighbour]:
        """The routers that are linked directly: what is told to them reaches all others."""
        return (each for each in self._context.neighbours if not each.is_relayed)

    def _changed(self, now: float) -> None:
        """There is something new about this router."""
        self._told_neighbours = self._usable_neighbours()
        self._sequence += 1
        self._add_news(now, self._context.own.id, None)

    def _add_news(self, now: float, id: int, source: Neighbour | None) -> None:
        self._news[id] = source
        self._news_at = min(self._news_at, now + _GATHER)
        self._alarm.by(self._news_at)

    # --- neighbours --------------------------------------------------------------------------

    def neighbour_up(self, now: float, neighbour: Neighbour, resumed: bool) -> None:
        """Tell it of all, and all of it."""
        self._solved(neighbour)
        if not neighbour.is_relayed and (not resumed or neighbour.identity.id not in self._told_neighbours):
            self._send(neighbour.link, [self.own(), *(each.record(now) for each in self.table)])
            self._changed(now)
        self._neighbours_changed(now)
        self._note_linked(neighbour.identity.id)
        if resumed:
            return
        self._processes.changed(now)
        self._refresh_at = min(self._refresh_at, now + _REFRESH)
        self._alarm.by(self._refresh_at)

    def neighbour_changed(self, now: float, neighbour: Neighbour) -> None:
        """Processes do not go on at a router that shuts down, and messages not over one that does not answer."""
        self._neighbours_changed(now)
        self._processes.changed(now)

    def _neighbours_changed(self, now: float) -> None:
        if self._usable_neighbours() != self._told_neighbours:
            self._changed(now)

    def neighbour_gone(self, now: float, neighbour: Neighbour, reason: str) -> None:
        """Tell all others, and the processes."""
        self._news = {id: source for id, source in self._news.items() if source is not neighbour}
        self._changed(now)
        self._processes.changed(now)

    def _send(self, link: Link, members: list[MemberBody]) -> None:
        for start in range(0, len(members), _IN_ONE_MESSAGE):
            link.send(MembersBody(members=tuple(members[start : start + _IN_ONE_MESSAGE])).message())

    # --- what others tell --------------------------------------------------------------------

    def _members(self, now: float, link: Link, message: bytes) -> None:
        source = self._context.neighbours.by_link.get(link)
        if source is None or source.is_relayed:
            return  # those that are linked directly tell it, too
        members = MembersBody.of(message).members
        self._node.turns.spend(_STEPS * len(members) + size_of(message) // _BYTES_OF_A_STEP)
        wrong = [said for said in members if not self._take(now, source, said)]
        if wrong:
            names = ", ".join(f"{each.name!r} (id {each.id})" for each in wrong[:3])
            raise ProtocolError(f"MEMBERS tells of routers that cannot be as it says: {names}", "members")

    def _take(self, now: float, source: Neighbour, said: MemberBody) -> bool:
        """Take what ``source`` tells of a router; return whether it can be true."""
        own, neighbours = self._context.own, self._context.neighbours
        if said.mesh != own.mesh or not said.name or said.id in said.neighbours:
            return False
        if said.id == own.id:
            return self._take_own(now, said)
        if said.id == source.identity.id:
            return self._take_from_itself(now, source, said)
        neighbour = neighbours.by_id.get(said.id)
        if neighbour is not None and neighbour.link.is_responsive and not neighbour.is_relayed:
            return True  # it tells itself
        if said.incarnation >= MAX_INCARNATION:
            return False
        may_tell = source.link not in self._context.limits and self._links.access.knows_router(said.key)
        if said.age < _FORGET * 1000 and self._enter(now, said, source) and may_tell:
            self._tell_parts(now, said)
        return True

    def _tell_parts(self, now: float, said: MemberBody) -> None:
        for tell in self._context.on_member:
            tell(now, said, said.left)

    def _take_own(self, now: float, said: MemberBody) -> bool:
        """Handle what is told of this router's id: it may be of an earlier life."""
        own = self._context.own
        if said.name != own.name:
            self._context.problem(now, f"router {own.id}", "id-taken", told_apart(own, said))
            return True
        if (said.incarnation, said.sequence) > (own.incarnation, self._sequence):
            if said.incarnation >= MAX_INCARNATION:
                return False
            own.incarnation = said.incarnation + 1
            self._changed(now)
        return True

    def _take_from_itself(self, now: float, source: Neighbour, said: MemberBody) -> bool:
        if said.name != source.identity.name:
            return False
        if not self._enter(now, said, source):
            return True
        identity = source.identity
        changed = (identity.incarnation, identity.urls) != (said.incarnation, said.urls)
        identity.incarnation, identity.urls = said.incarnation, said.urls
        if changed:
            self._processes.changed(now)
        return True

    def _enter(self, now: float, said: MemberBody, source: Neighbour) -> bool:
        """Enter a record; return whether it is news."""
        table, linked = self.table, self._context.neighbours.by_id
        if table.get(said.id) is None:
            gives_way = table.one_too_many(source.identity.id, linked.keys())
            if gives_way is not None:
                table.remove(gives_way)
                self._context.targets.forget(gives_way)
        before = table.changes
        if not table.take(now, said, source.identity.id):
            return False
        self._note_linked(said.id)
        self._add_news(now, said.id, source)
        self._forget_at = min(self._forget_at, now - said.age / 1000 + _FORGET)
        self._alarm.by(self._forget_at)
        self._learn(now, said)
        if table.changes != before:
            self._topology_changed(now)
        return True

    def _solved(self, neighbour: Neighbour) -> None:
        """Nothing is in the way of a link with ``neighbour`` any more; of a direct one, unless it goes over others."""
        id = neighbour.identity.id
        targets = () if neighbour.is_relayed else (each.urls for each in self._context.targets if each.id == id)
        self._context.solved(relay_name(id), *chain.from_iterable(targets))

    def _note_linked(self, id: int) -> None:
        member = self.table.get(id)
        if member is not None and id in self._context.neighbours.by_id:
            member.was_linked = True

    def _learn(self, now: float, said: MemberBody) -> None:
        targets = self._context.targets
        if said.left:
            targets.forget(said.id)
            self._context.solved(*said.urls, relay_name(said.id))
        elif self._links.access.knows_router(said.key):
            targets.learn(now, said.id, filter(is_connect_url, said.urls), said.key)

    def _topology_changed(self, now: float) -> None:
        for tell in self._context.on_topology:
            tell(now)
        self._processes.changed(now)

    # --- time --------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Tell what is new, and forget what is old."""
        if now < self._alarm.at:
            return
        try:
            self._do_what_is_due(now)
        finally:
            news = self._processes.next_deadline()
            self._alarm.at = min(self._refresh_at, self._news_at, self._forget_at, self._leaves_at, news)

    def _do_what_is_due(self, now: float) -> None:
        if now >= self._refresh_at:
            self._refresh_at = now + _REFRESH if self._context.neighbours else inf
            self._changed(now)
        if now >= self._news_at:
            self._tell(now)
        if now >= self._forget_at:
            self._forget(now)
        if now >= self._leaves_at:
            self._leaves_at = inf
            for neighbour in list(self._context.neighbours):
                self._links.end_safely(now, neighbour.link, "this router has left the mesh")
        self._processes.tick(now)

    def next_deadline(self) -> float:
        """The time of the next :meth:`tick` (monotonic seconds)."""
        return self._alarm.at

    def _tell(self, now: float) -> None:
        news, self._news, self._news_at = self._news, {}, inf
        own = self._context.own.id
        for neighbour in self._hops():
            ids = [id for id, source in news.items() if source is not neighbour]
            known = [member for id in ids if (member := self.table.get(id)) is not None]
            # Those that are linked to it tell it themselves.
            others = [each.record(now) for each in known if neighbour.identity.id not in each.said.neighbours]
            told = [self.own(), *others] if own in ids else others
            if told:
                self._send(neighbour.link, told)

    def _forget(self, now: float) -> None:
        for id in self._context.neighbours.by_id:
            # As long as there is a link it need not be heard of.
            if (member := self.table.get(id)) is not None:
                member.heard = now
        forgotten = self.table.forget(now, _FORGET)
        for member in forgotten:
            said = member.said
            if member.was_linked:
                self._context.targets.rarely(said.id)
            else:
                self._context.targets.forget(said.id)
            self._context.targets.on_due(now)  # of one that had left nothing is known any more
            text = f"router {said.name} (id {said.id}) was not heard of for {_FORGET:g} s"
            self._node.act(LogEvent("router forgotten", text, said.name))
        if forgotten:
            self._topology_changed(now)
        self._forget_at = self.table.next_to_forget() + _FORGET
