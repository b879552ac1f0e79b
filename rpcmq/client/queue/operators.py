"""The queue servers of a mesh as an operator asks them: each for its own queues."""

from __future__ import annotations

from typing import Any

from rpcmq.client.client import Client
from rpcmq.client.queue.protocol import CHANGE, LOOK, OPERATORS, at_operators, at_owner
from rpcmq.errors import PayloadRefused

__all__ = ["Operators"]


class Operators:
    """Asks the queue servers that the router of ``client`` can reach.

    Args:
        seconds: that an answer may take.
    """

    def __init__(self, client: Client, seconds: float) -> None:
        self._client = client
        self._seconds = seconds

    def owners(self) -> list[str]:
        """The names of all owners that a queue server of the mesh speaks for: its router, or one that is gone.

        Raises:
            RpcError: as for :meth:`rpcmq.Client.query`; it needs the right ``admin`` on ``addresses``, and on ``mesh``
                where there are too many of them for one answer.
        """
        seen = self._client.query("addresses", self._seconds)
        found = {row["server"] for row in seen["addresses"] if (row["exchange"], row["topic"]) == (OPERATORS, LOOK)}
        if seen["truncated"]:
            view = self._client.query("mesh", self._seconds)
            found |= {view["router"], *(row["name"] for row in view["routers"])}
        return sorted(found - {""})

    def look(self, owner: str, method: str, **args: Any) -> Any:
        """Ask the queue server of ``owner`` for something.

        Raises:
            NoConsumer: there is none.
            RpcError: as for :meth:`rpcmq.Client.call`; it needs the right ``call`` on ``look``, or ``look.OWNER``.
        """
        return self._ask(LOOK, owner, method, args)

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
