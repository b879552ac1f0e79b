"""The verbs that the router itself answers: declarations, views, purge and kick."""

from __future__ import annotations

from time import monotonic
from typing import Any

from rpcmq.client.arguments import check_group
from rpcmq.client.base import BaseClient
from rpcmq.client.sender import Target
from rpcmq.client.shown_names import shown_as
from rpcmq.config.values import is_connect_url
from rpcmq.errors import UsageError
from rpcmq.transport.home import at_home
from rpcmq.wire import MAX_VIEW_BYTES, Address, body_of
from rpcmq.wire.bodies import DeclareBody
from rpcmq.wire.query_bodies import (
    KickAnswer,
    KickQuery,
    MeshForgetQuery,
    MeshJoinQuery,
    MeshLeaveQuery,
    MeshStateAnswer,
    PurgeAnswer,
    PurgeQuery,
    QueryBody,
)

__all__ = ["RouterVerbs"]

_ROUTER = (b"", "router")


@shown_as("Client")
class RouterVerbs(BaseClient):
    """The verbs that the router itself answers."""

    @at_home
    def declare(self, topic: Target, *, group: str = "", timeout: float | None = None) -> None:
        """Have the router queue messages to ``topic``, though it has never been consumed.

        It is kept as for a topic whose consumers are away: within the router's ``mailbox`` bounds. A router that takes
        its place, or its next life, is told of the last 1,000 topics again.

        Args:
            topic: as for :meth:`call`.
            group: the group of the topic that a copy is kept for; default: the topic itself.
            timeout: seconds to wait for the router.

        Raises:
            RouterUnreachable, CallTimeout: there is no answer.
            CallError: the router refuses it.
            UsageError: a wrong argument.
        """
        check_group(group)
        address, name = self.sender.address(topic)
        self.sender.ask(DeclareBody(group=group), (address, name), timeout)
        self.process.calls.declarations.add(address, name, group)

    @at_home
    def query(self, view: str = "overview", timeout: float | None = None) -> dict[str, Any]:
        """The router's own state: ``overview``, ``summary``, ``processes``, ``topics``, ``calls``, ``methods``,
        ``keys``, ``stuck``, ``dropped``, ``stats``, ``mesh``.

        Raises:
            RouterUnreachable, CallTimeout: there is no answer.
            CallError: there is no such view.
        """
        return body_of(self.sender.ask(QueryBody(what=view), _ROUTER, timeout), MAX_VIEW_BYTES)

    @at_home
    def statistics(self) -> dict[str, Any]:
        """Counters of this process's casts and answers, as far as it knows; they never decrease.

        Returns:
            ``casts_open``: not yet acknowledged by the router. ``casts_kept``: the router has them, and no consumer
            yet; they are offered to its next life if it is killed. ``casts_let_go``: kept no longer, because
            ``cast_kept`` or ``cast_kept_bytes`` was reached. ``casts_left_behind``: the router had them, and no
            consumer yet, when this process went on at another one. ``dropped``: verb -> reason -> count, of what the
            router has dropped or refused; ``dropped_topics``: the same as rows with ``topic``, ``verb``, ``reason`` and
            ``count``. In a mesh, ``answers_kept``: those whose callers may not have them, and ``answers_let_go``: kept
            no longer, because ``answers_kept_bytes`` or their greatest number (4096) was reached.
        """
        casts, tasks = self.process.casts, self.process.tasks
        return {
            "answers_kept": len(tasks.witness.answers),
            "answers_let_go": tasks.counters["answers dropped"],
            "casts_open": casts.open,
            "casts_kept": len(casts.retained),
            "casts_let_go": casts.retained.discarded,
            "casts_left_behind": casts.counters["casts left behind"],
            "dropped": casts.losses.drops.totals,
            "dropped_topics": [
                {name: row[name] for name in ("topic", "verb", "reason", "count")}
                for row in casts.losses.drops.rows(monotonic())
            ],
        }

    @at_home
    def purge(
        self, topic: Target, *, group: str = "", forget: bool = False, timeout: float | None = None
    ) -> dict[str, Any]:
        """Have the router drop what waits for ``topic`` and its servers now. What consumers have is not touched.

        Args:
            topic: as for :meth:`call`; of a server's own topic, only what waits for that server.
            group: the group of the topic whose messages are meant; default: the topic itself.
            forget: also forget the topic if nobody consumes it.
            timeout: seconds to wait for the router.

        Returns:
            ``known``: whether the router has the topic; ``casts`` and ``calls``: how many were dropped; ``forgotten``.

        Raises:
            AccessDenied: the key of this process has no right ``admin`` on ``control.purge``.
            RouterUnreachable, CallTimeout: there is no answer.
            UsageError: a wrong argument.
        """
        check_group(group)
        address = topic if isinstance(topic, Address) else Address(topic, "", self.config.exchange)
        name = f"{address.topic}.{address.server}" if address.server else address.topic
        query = PurgeQuery(topic=name, exchange=address.exchange, group=group, forget=forget)
        deadline = monotonic() + self.sender.seconds(timeout)
        casts = calls = 0
        waited: int | None = None
        while True:
            left = max(0.001, deadline - monotonic())
            answer = PurgeAnswer.of(self.sender.ask(query, _ROUTER, left))
            purged, remaining = answer.casts + answer.calls, answer.remaining
            casts, calls = casts + answer.casts, calls + answer.calls
            waited = purged + remaining if waited is None else waited
            # One request purges some thousands; messages that arrive meanwhile are not purged.
            if not (purged and remaining) or casts + calls >= waited:
                return {"known": answer.known, "casts": casts, "calls": calls, "forgotten": answer.forgotten}

    @at_home
    def join_mesh(self, url: str, server_key: str = "", timeout: float | None = None) -> None:
        """Have the router dial the router at ``url`` from now on, and so join its mesh; returns before it is linked.

        Args:
            url: the endpoint of that router.
            server_key: its public key, if routers have keys.
            timeout: seconds to wait for the router.

        Raises:
            UsageError: ``url`` is no endpoint of another router.
            AccessDenied: the key of this process has no right ``admin`` on ``control.mesh.join``.
            RouterUnreachable, CallTimeout: there is no answer.
        """
        if not is_connect_url(url):
            raise UsageError(f"url {url!r}: expected a URL like 'tcp://10.0.0.7:7700'")
        self.sender.ask(MeshJoinQuery(url=url, server_key=server_key), _ROUTER, timeout)

    @at_home
    def forget_peer(self, url: str, timeout: float | None = None) -> None:
        """Have the router dial ``url`` no more, which ``join_mesh`` or its settings have named.

        It may also be that of a router of which nothing was heard for 90 s, and which is dialled rarely since then.
        A link that has come of it stays, and a router that others tell of is dialled as ever.

        Args:
            url: as it was given.
            timeout: seconds to wait for the router.

        Raises:
            CallError: the router does not dial that url.
            AccessDenied: the key of this process has no right ``admin`` on ``control.mesh.forget``.
            RouterUnreachable, CallTimeout: there is no answer.
        """
        self.sender.ask(MeshForgetQuery(url=url), _ROUTER, timeout)

    @at_home
    def leave_mesh(self, timeout: float | None = None) -> int:
        """Have the router leave its mesh: its links to other routers end, and none of them dials it any more.

        Returns:
            How many routers it was linked to.

        Raises:
            AccessDenied: the key of this process has no right ``admin`` on ``control.mesh.leave``.
            RouterUnreachable, CallTimeout: there is no answer.
        """
        return MeshStateAnswer.of(self.sender.ask(MeshLeaveQuery(), _ROUTER, timeout)).linked

    @at_home
    def kick(self, identity: str, timeout: float | None = None) -> int:
        """Have the router end the links of the process ``identity``, as if it had gone.

        Its calls end with LinkLost, as do those that it has; casts that it has not begun go to others. If it lives it
        connects again: to keep it out, revoke its key.

        Returns:
            How many links it had; 0 if there is no such process.

        Raises:
            AccessDenied: the key of this process has no right ``admin`` on ``control.kick``.
            RouterUnreachable, CallTimeout: there is no answer.
        """
        return KickAnswer.of(self.sender.ask(KickQuery(identity=identity), _ROUTER, timeout)).links
