"""Problems of work queues, for ``rpcmq doctor``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rpcmq.cli.text import counted
from rpcmq.errors import NoConsumer, RpcError

if TYPE_CHECKING:
    from rpcmq.client import Client

__all__ = ["queue_problems"]


def queue_problems(client: Client, owner: str, timeout: float) -> Iterator[tuple[str, str, str]]:
    """Yield subject, observation and advice for each problem of the queues of the router ``owner``."""
    from rpcmq.client.queue.queue_servers import QueueServerAway, QueueServers

    servers = QueueServers(client, timeout)
    try:
        answer = servers.wait_for(owner, lambda: servers.look(owner, "queues"))
    except NoConsumer:
        return  # a router without queues
    except QueueServerAway as error:
        yield "queues", f"the queue server {error}", "nothing can be put; the router's log says since when"
        return
    except RpcError as error:
        yield "queues", f"not asked: {error}", "see /queues of the router; or give --key-file with a key that may"
        return
    if answer["store"]["waits_for"]:
        yield "queues", f"their store does not answer: {answer['store']['waits_for']}", "nothing is lost; puts wait"
    if faults := answer["store"].get("faults", 0):
        text = f"{counted(faults, 'answer')} of their store could not be used, by an error in rpcmq"
        yield "queues", text, f"the log of {owner} has each with its traceback: report it"
    for row in answer["queues"]:
        name = row["queue"]
        if row["state"] == "stands still" or (row["state"] == "paused" and row["ready"]):
            text = f"{counted(row['ready'], 'waiting item')}, none has moved for {row['still']:.0f} s: {row['why']}"
            yield f"queue {name}", text, f"rpcmq queue show {name}"
        if row["dead"]:
            yield f"queue {name}", counted(row["dead"], "dead item"), f"rpcmq queue dead {name} tells the reasons"
