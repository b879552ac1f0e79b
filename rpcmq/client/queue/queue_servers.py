"""The queue servers of a mesh as an operator asks them: each for its own queues."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any, TypeVar

from rpcmq.client.client import Client
from rpcmq.client.queue.absence import absent, in_words
from rpcmq.client.queue.protocol import CHANGE, LOOK, OPERATORS, at_operators, at_owner
from rpcmq.client.queue.steps import growing_pauses
from rpcmq.errors import NoConsumer, PayloadRefused, RpcError
from rpcmq.transport.current_hub import pause

__all__ = ["QueueServerAway", "QueueServers"]

T = TypeVar("T")


class QueueServerAway(RpcError):
    """A router has a queue server, which does not answer; the text says how it is: ``is starting``."""


class QueueServers:
    """Asks those that the router of ``client`` can reach.

    Args:
        seconds: that an answer may take.
    """

    def __init__(self, client: Client, seconds: float) -> None:
        self._client = client
        self._seconds = seconds

    def owners(self) -> list[str]:
        """The names of all owners: routers with a queue server, whether it runs or not, and those that are gone and
        for which one speaks.

        Where there is none yet, and not all routers are known, it waits until they are, or an owner is.

        Raises:
            RpcError: as for :meth:`rpcmq.Client.query`; it needs the right ``admin`` on ``addresses``, and on ``mesh``
                where there are too many of them for one answer.
        """
        deadline, pauses = monotonic() + self._seconds, growing_pauses()
        while True:
            found, is_all = self._owners()
            if found or is_all or monotonic() >= deadline:
                return sorted(found)
            pause(next(pauses))

    def _owners(self) -> tuple[set[str], bool]:
        """The names of those that are known now, and whether there are no others."""
        seen = self._client.query("addresses", self._seconds)
        found = {row["server"] for row in seen["addresses"] if (row["exchange"], row["topic"]) == (OPERATORS, LOOK)}
        if seen["truncated"]:
            view = self._client.query("mesh", self._seconds)
            found |= {view["router"], *(row["name"] for row in view["routers"])}
        # Routers of an earlier version tell of none that is not linked.
        return (found | seen.get("queue_servers", {}).keys()) - {""}, seen.get("queue_servers_all", True)

    def wait_for(self, owner: str, ask: Callable[[], T]) -> T:
        """Return what ``ask`` returns, which asks the queue server of ``owner``, and is asked again while that starts.

        Raises:
            NoConsumer: there is none.
            QueueServerAway: there is one, which does not answer, for the reason in the text.
        """
        deadline, pauses = monotonic() + self._seconds, growing_pauses()
        while True:
            try:
                return ask()
            except NoConsumer as error:
                if (absence := absent(error)) is None or absence.is_without(owner):
                    raise
                if absence.is_unavailable(owner) or monotonic() >= deadline:
                    if owner in absence.states:
                        raise QueueServerAway(in_words(absence.states[owner])) from error
                    raise
            pause(next(pauses))

    def look(self, owner: str, method: str, **args: Any) -> Any:
        """Ask the queue server of ``owner`` for something.

        Raises:
            NoConsumer: there is none.
            RpcError: as for :meth:`rpcmq.Client.call`; it needs the right ``call`` on ``look``, or ``look.OWNER``.
        """
        return self._ask(LOOK, owner, method, args)

    def dead(self, owner: str, queue: str, most: int, has_story: bool) -> list[dict[str, Any]] | None:
        """Tell of the first dead items of ``queue``, asked for in parts; None: ``owner`` has no such queue.

        Raises:
            NoConsumer, RpcError: as for :meth:`look`.
        """
        rows: list[dict[str, Any]] = []
        more: dict[str, Any] = {}
        while True:
            part = self.look(
                owner, "items", queue=queue, state="dead", most=most - len(rows), has_story=has_story, **more
            )
            if part is None:
                return None
            marks = [row.pop("mark", None) for row in part]
            rows += part
            # A queue server of an earlier version tells of the first part alone.
            if not part or marks[-1] is None or len(rows) >= most:
                return rows
            more = {"after": marks[-1]}

    def messages(self, owner: str, queue: str, state: str, most: int) -> list[dict[str, Any]] | None:
        """Tell of the first items of ``queue`` in ``state``, with the ``context`` and ``args`` of each, decoded here.

        Where they are not decoded, ``undecoded`` says why. None: ``owner`` has no such queue.

        Raises:
            NoConsumer, RpcError: as for :meth:`look`.
        """
        rows: list[dict[str, Any]] | None = self.look(
            owner, "items", queue=queue, state=state, most=most, has_message=True
        )
        payloads = self._client.process.payloads
        for row in rows or ():
            format, body = row.pop("format", None), row.pop("body", None)
            if body is None:
                continue
            try:
                message = payloads.item(at_owner(queue, owner), format, body)
            except PayloadRefused as error:
                row["undecoded"] = str(error)
                continue
            if isinstance(message, dict):
                row |= {"context": message.get("context"), "args": message.get("args")}
        return rows

    def change(self, owner: str, method: str, **args: Any) -> Any:
        """Have the queue server of ``owner`` change something.

        Raises:
            NoConsumer: there is none.
            RpcError: as for :meth:`rpcmq.Client.call`; it needs the right ``call`` on ``change``, or ``change.OWNER``.
        """
        return self._ask(CHANGE, owner, method, args)

    def _ask(self, topic: str, owner: str, method: str, args: dict[str, Any]) -> Any:
        message = {"method": method, "args": args}
        return self._client.call(None, at_operators(topic, owner), message, self._seconds, mandatory=True, retry=False)
