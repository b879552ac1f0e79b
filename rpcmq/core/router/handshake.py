"""The handshake: HELLO makes or resumes a link and is answered with WELCOME, or with REFUSED.

* An identity has at most one link of each queue type. A HELLO with the link's token resumes it, whatever connection
  it came on; without the token it is refused while the link is connected, and replaces it while it is away.
* After a restart of the router, a process gets the handle again that it had, so that what it re-sends is recognised.
* A process that comes from another router of the same mesh, or from one that was in none as far as the process knew,
  keeps its origin, that router's id and handle, for the same reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice

from rpcmq.core.common.session import MAX_FAILED_RESUMPTIONS
from rpcmq.core.common.text import shorten
from rpcmq.core.router.access_control import Admission, Refusal
from rpcmq.core.router.link_states import LinkState
from rpcmq.core.router.link_table import REPLACED, LinkTable
from rpcmq.core.router.model import Link
from rpcmq.core.router.node_type import Greeter
from rpcmq.core.router.settings import Settings
from rpcmq.errors import ProtocolError
from rpcmq.payload.format import known_mask
from rpcmq.wire import Flag, Kind, body_of, origin_of, pack, router_of_origin
from rpcmq.wire.bodies import MESH_TYPE, HelloBody, RefusedBody, WelcomeBody

__all__ = ["Handshake"]

#: Number of links that have been away for longest among which one is evicted when there are too many.
_EVICTION_CANDIDATES = 100
#: Heartbeats of processes in a mesh, as a share of the silence after which they leave the router.
_HEARTBEAT_SHARE = 0.25


class Handshake:
    """Answers HELLO.

    Args:
        boot: wall-clock milliseconds at start; names this life of the router.
        new_token: makes an unguessable string.
    """

    def __init__(self, settings: Settings, links: LinkTable, boot: int, new_token: Callable[[], str]) -> None:
        self._settings = settings
        self._links = links
        self._boot = boot
        self._new_token = new_token
        #: Take HELLOs of links that are not of processes, by queue type.
        self.greeters: Mapping[str, Greeter] = {}
        # Never handles of an earlier life, whose processes may return: two may start in the same second. Nor those of
        # another router that has the same id in its keys, and is linked to this one later: both may start at once.
        self._next_handle = (boot // 1000 & 0xFFFFFFFF) << 32 | boot % 1000 << 22 | (settings.mesh_id & 0x3FF) << 12

    def refuse_without_hello(self) -> bytes:
        """Return the answer to a message from a connection that has not said HELLO."""
        self._links.counters["stranger"] += 1
        return RefusedBody(reason="hello-first", text="say HELLO before anything else").message()

    def hello(self, now: float, route: bytes, message: bytes, user: str = "") -> bytes | None:
        """Handle HELLO; return the refusal to send to ``route``, or None if the process is welcome.

        Args:
            user: the public key of its connection; empty without CURVE.

        Raises:
            ProtocolError: the body is not a JSON object.
        """
        body = body_of(message)
        try:
            hello = HelloBody.parse(body)
            if hello.queue_type in self.greeters:
                return self.greeters[hello.queue_type](now, route, hello, user)
            if hello.queue_type == MESH_TYPE:
                raise Refusal("queue-type", "this router links to no other router")
            admission = self._links.access.admit(user, hello.identity)
            admission.check_process()
            link = self._known_link(now, hello, admission)
            received = hello.received if link is not None else None
            if link is None:
                link = self._new_link(now, hello, admission)
        except ProtocolError as error:
            return self._refused(error.reason, str(error))
        except Refusal as refusal:
            return self._refused(refusal.reason, str(refusal))
        try:
            self._connect(now, link, route, hello, received)
        except BaseException:
            # A link neither connected nor away would never end.
            self._links.end(now, link, "its handshake failed")
            raise
        return None

    def new_handle(self) -> int:
        """Return a handle that no link has, nor had in an earlier life."""
        self._next_handle += 1
        while self._is_used(self._settings.router_id, self._next_handle):
            self._next_handle += 1
        return self._next_handle

    def _refused(self, reason: str, text: str) -> bytes:
        self._links.counters[f"refused {reason}"] += 1
        return RefusedBody(reason=reason, text=shorten(text)).message()

    def _known_link(self, now: float, hello: HelloBody, admission: Admission) -> Link | None:
        """Return the link that the process resumes; None if it is to get a new one, and has none any more."""
        identity, token, received = hello.identity, hello.token, hello.received
        link = self._links.by_identity(identity, hello.queue_type, hello.role)
        if self._links.draining and not (link is not None and token == link.token and link.can_resume(received)):
            # A process with a session may resume it, to receive outstanding answers.
            raise Refusal("draining", "the router is shutting down")
        if link is None:
            return None
        if token != link.token or not admission.owns(link):
            if link.state is not LinkState.AWAY:
                # The old connection may be dead unnoticed: sending on it will show.
                link.send_last(pack(Kind.HEARTBEAT, flags=Flag.ANSWER_WANTED))
                text = f"identity {identity!r} is taken by a live process; stop it or choose another identity"
                raise Refusal("identity-taken", text)
            reason = REPLACED
        elif link.failed_resumptions >= MAX_FAILED_RESUMPTIONS:
            # Some message ends each connection it is sent on. To its sender, it may have run.
            reason = f"{MAX_FAILED_RESUMPTIONS} connections in a row ended before it acknowledged what it was sent"
        elif link.can_resume(received):
            return link
        else:
            reason = "started over"
        self._links.end(now, link, reason)
        return None

    def _new_link(self, now: float, hello: HelloBody, admission: Admission) -> Link:
        if len(self._links) >= self._settings.max_links and not self._evict_away_link(now):
            text = f"link limit reached (link.max_links = {self._settings.max_links})"
            raise Refusal("too-many-links", text)
        admission.check_room()
        link = self._create(hello, admission)
        admission.attach(link)
        # Last: one that is in the table before it is complete would never end.
        self._links.add(link)
        return link

    def _evict_away_link(self, now: float) -> bool:
        """End one of the links that have been away for longest, preferably one that never sent anything."""
        candidates = list(islice(self._links.away, _EVICTION_CANDIDATES))
        if not candidates:
            return False
        link = next((link for link in candidates if not link.received), candidates[0])
        self._links.end(now, link, "evicted while away: the link table was full")
        return True

    def _create(self, hello: HelloBody, admission: Admission) -> Link:
        links = self._links
        router_id, handle = self._former_origin(hello)
        returning = bool(handle) and admission.may_keep_handle(router_id, handle, hello.token)
        if not returning or self._is_used(router_id, handle):
            router_id, handle = self._settings.router_id, self.new_handle()
        link = Link(links.dirty, hello.identity, hello.queue_type, handle, router_id)
        link.role = hello.role
        link.moves = hello.moves
        link.returning = returning
        links.has_returned = links.has_returned or returning
        link.handlers = links.handlers
        link.token = self._new_token()
        return link

    def _former_origin(self, hello: HelloBody) -> tuple[int, int]:
        """Return the router and the handle that the process had in its keys; no handle if they cannot be its here."""
        own, router_id, handle = self._settings.router_id, hello.origin_router, hello.handle or 0
        if router_id is None or router_id == own:
            router_id = own
        elif not (hello.follows_mesh and self._is_of_our_mesh(hello)):
            handle = 0
        return router_id, handle if 0 < handle < 1 << 64 else 0

    def _is_of_our_mesh(self, hello: HelloBody) -> bool:
        """Return whether the process was in this router's mesh, or knew of none, which may have begun just then."""
        name = self._links.mesh.get("mesh")
        return name is not None and hello.mesh.get("mesh", name) == name

    def _is_used(self, router_id: int, handle: int) -> bool:
        return self._links.by_origin(origin_of(router_id, handle)) is not None

    def _connect(self, now: float, link: Link, route: bytes, hello: HelloBody, received: int | None) -> None:
        """Let ``route`` carry ``link``, which resumes if ``received`` is given."""
        links = self._links
        if received is not None:
            link.forget_inbox()
            links.on_taken(now, link, link.resume(received))
        links.attach_route(now, link, route)
        link.accepts = known_mask(list(hello.accepts))
        link.role = hello.role
        link.follows_mesh, link.routers = hello.follows_mesh, hello.routers
        link.keeps, link.answers_drain, link.wants_drops = hello.keeps, hello.answers_drain, hello.wants_drops
        link.description = {k: getattr(hello, k) for k in ("host", "pid", "program", "library")}
        link.send_first(self._welcome(link, received is not None, hello.follows_mesh))
        if links.draining:
            links.send_drain(link)
        link.counters["connects"] += 1
        links.access.connected(now, link)
        links.connected(now, link)

    def _welcome(self, link: Link, resumed: bool, follows_mesh: bool) -> bytes:
        settings = self._settings
        mesh = self._links.mesh if follows_mesh else {}
        heartbeat_seconds, lost_seconds = settings.heartbeat_seconds, settings.lost_seconds
        if mesh:
            # There are others to go to.
            lost_seconds = min(lost_seconds, settings.mesh_lost_seconds)
            heartbeat_seconds = min(heartbeat_seconds, lost_seconds * _HEARTBEAT_SHARE)
        return WelcomeBody(
            router=settings.router_name,
            router_id=router_of_origin(link.origin),
            boot=self._boot,
            handle=link.handle,
            token=link.token,
            resumed=resumed,
            received=link.received,
            mesh=mesh,
            heartbeat_seconds=heartbeat_seconds,
            unresponsive_seconds=settings.unresponsive_seconds,
            lost_seconds=lost_seconds,
            recovery_seconds=settings.recovery_seconds,
            max_message_bytes=settings.message_max_bytes,
            error_names=True,
            tells_delivered=True,
            stamps=self._links.stamps,
            takes_back=True,
            request_streams=True,
            byte_credit=True,
            hedges=True,
            lapsed=bool(link.lapsed_consumers),
        ).message()
