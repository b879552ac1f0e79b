"""Asking the queue servers of all routers of a mesh, or of one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import click
import gevent

from rpcmq.cli.exit_codes import ExitCode
from rpcmq.cli.options import State, make_client, positive
from rpcmq.cli.output import Output
from rpcmq.cli.text import plain
from rpcmq.errors import AccessDenied, CallError, NoConsumer, RpcError

if TYPE_CHECKING:
    from rpcmq.client.queue.queue_servers import QueueServers

__all__ = ["Answers", "ask", "known", "of_owners", "say_silent", "silent_code"]

#: Queue servers that are asked at a time.
_AT_ONCE = 16
Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass
class Answers:
    """The answers of queue servers.

    Attributes:
        by_owner: by the name of the router.
        silent: the reason for which there is no answer, by the name of the router.
        queues: the names of the queues that there are, where one was asked for that nobody has.
    """

    by_owner: dict[str, Any] = field(default_factory=dict)
    silent: dict[str, str] = field(default_factory=dict)
    queues: list[str] = field(default_factory=list)

    def silent_rows(self) -> list[dict[str, str]]:
        """The queue servers that did not answer, as plain data."""
        return [{"owner": name, "text": text} for name, text in self.silent.items()]


def of_owners(command: Command) -> Command:
    """``--owner`` and ``--timeout``: for a command that asks queue servers."""
    owner = click.option("--owner", metavar="ROUTER", help="Only the queue server of this router.  [default: all]")
    timeout = click.option("--timeout", type=positive, default=5.0, show_default=True, help="Seconds.")
    return owner(timeout(command))


def ask(state: State, owner: str | None, timeout: float, request: Callable[[QueueServers, str], Any]) -> Answers:
    """Make ``request`` to the queue server of ``owner``, or of each owner in the mesh.

    Raises:
        NoConsumer: there is no queue server.
        RpcError: the router does not answer, or refuses it.
    """
    from rpcmq.client.queue.queue_servers import QueueServerAway, QueueServers

    answers = Answers()
    with make_client(state, timeout) as client:
        servers = QueueServers(client, timeout)
        owners = [owner] if owner else servers.owners()
        denied: list[AccessDenied] = []

        def ask_one(name: str) -> None:
            try:
                answers.by_owner[name] = servers.wait_for(name, lambda: request(servers, name))
            except NoConsumer:
                pass  # a router without queues
            except QueueServerAway as error:
                answers.silent[name] = f"it {error}"
            except CallError as error:
                answers.silent[name] = str(error)
                if isinstance(error, AccessDenied):
                    denied.append(error)

        for begin in range(0, len(owners), _AT_ONCE):
            asked = [gevent.spawn(ask_one, name) for name in owners[begin : begin + _AT_ONCE]]
            gevent.joinall(asked, raise_error=True)
        if denied and not answers.by_owner:
            raise denied[0]
        if not answers.by_owner and not answers.silent:
            where = f"router {owner!r}" if owner else "no router of this mesh"
            has = "has no queue server, or is not there" if owner else "has a queue server"
            raise NoConsumer(f"{where} {has}: rpcmq router --queue-dir DIR")
        answers.by_owner = {name: answers.by_owner[name] for name in owners if name in answers.by_owner}
        if answers.by_owner and all(answer is None for answer in answers.by_owner.values()):
            answers.queues = _names(servers, list(answers.by_owner))
    return answers


def _names(servers: QueueServers, owners: list[str]) -> list[str]:
    found = (row["queue"] for owner in owners for row in servers.look(owner, "queues")["queues"])
    return sorted(set(found))


def known(answers: Answers, queue: str) -> dict[str, Any]:
    """The answers of those that know ``queue``.

    Raises:
        RpcError: nobody does, or who could is silent.
    """
    found = {owner: answer for owner, answer in answers.by_owner.items() if answer is not None}
    if not answers.by_owner and answers.silent:
        raise RpcError("; ".join(_silences(answers)))
    if not found:
        there = f"there are {', '.join(answers.queues)}" if answers.queues else "there is none yet"
        silent = "".join(f"; {text}" for text in _silences(answers))
        raise RpcError(f"no router has a queue {queue!r}; {there}{silent}")
    return found


def say_silent(output: Output, answers: Answers) -> None:
    """Name those that did not answer."""
    for text in _silences(answers):
        output.print(plain(text), style="red", markup=False)


def _silences(answers: Answers) -> list[str]:
    return [f"the queue server of {name} does not answer: {text}" for name, text in answers.silent.items()]


def silent_code(answers: Answers) -> int | None:
    """The exit code of a command that looks: 1 if one did not answer."""
    return ExitCode.FAILED if answers.silent else None
