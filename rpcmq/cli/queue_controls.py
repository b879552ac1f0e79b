"""``rpcmq queue pause``, ``resume``, ``drain`` and ``set``: what an operator changes about a queue as a whole."""

from __future__ import annotations

from time import monotonic
from typing import Any

import click
import gevent

from rpcmq.cli.exit_codes import ExitCode
from rpcmq.cli.options import State, connects, json_option, positive
from rpcmq.cli.output import Output, print_json
from rpcmq.cli.queue_owners import Answers, ask, known, of_owners, say_silent, silent_code
from rpcmq.cli.text import counted, plain
from rpcmq.cli.values import parse_value
from rpcmq.client.queue.protocol import check_queue
from rpcmq.errors import UsageError

__all__ = ["drain_command", "pause_command", "resume_command", "set_command"]

#: The states of items that are to end before a queue is empty; and the pause between two looks at it (seconds).
_LEFT, _LOOK = ("ready", "postponed", "running"), 0.2


@click.command("pause")
@click.argument("queue")
@of_owners
@json_option
@connects
@click.pass_obj
def pause_command(state: State, queue: str, owner: str | None, timeout: float) -> int | None:
    """Stop giving items of QUEUE to workers, until `rpcmq queue resume QUEUE`.

    Workers finish the items that they have, and new items are accepted. It lasts over restarts. The exit code is 1 if
    no router has the queue, or a queue server does not answer.
    """
    answers = ask(state, owner, timeout, lambda servers, name: servers.change(name, "pause", queue=queue))
    return _told(state, queue, answers, "paused", "was paused already")


@click.command("resume")
@click.argument("queue")
@of_owners
@json_option
@connects
@click.pass_obj
def resume_command(state: State, queue: str, owner: str | None, timeout: float) -> int | None:
    """Accept items for QUEUE and give them to workers again, after `rpcmq queue pause` or `drain`.

    The exit code is 1 if no router has it, or a queue server does not answer.
    """
    answers = ask(state, owner, timeout, lambda servers, name: servers.change(name, "resume", queue=queue))
    return _told(state, queue, answers, "resumed", "was neither paused nor draining")


@click.command("drain")
@click.argument("queue")
@click.option("--wait", type=positive, metavar="SECONDS", help="Wait until QUEUE is empty, for so long.")
@of_owners
@json_option
@connects
@click.pass_obj
def drain_command(state: State, queue: str, wait: float | None, owner: str | None, timeout: float) -> int | None:
    """Refuse new items for QUEUE while workers finish those that are there, until `rpcmq queue resume QUEUE`.

    It lasts over restarts. With --wait the exit code is 1 if items are left after that time: ready,
    postponed or running ones, not dead ones; also if no router has the queue, or a queue server does not answer.
    """
    answers = ask(state, owner, timeout, lambda servers, name: servers.change(name, "drain", queue=queue))
    if wait is None:
        return _told(state, queue, answers, "takes no more items", "took no items already")
    known(answers, queue)
    deadline = monotonic() + wait
    while True:
        seen = ask(state, owner, timeout, lambda servers, name: servers.look(name, "show", queue=queue))
        left = {name: sum(row[each] for each in _LEFT) for name, row in known(seen, queue).items()}
        if not any(left.values()) or monotonic() >= deadline:
            break
        gevent.sleep(_LOOK)
    if state.json:
        rows = [{"owner": name, "items": count} for name, count in left.items()]
        print_json({"queue": queue, "owners": rows, "silent": seen.silent_rows()})
    else:
        for name, count in left.items():
            click.echo(plain(f"{queue} of {name}: {counted(count, 'item')} left"))
        say_silent(Output(stderr=True), seen)
    return ExitCode.FAILED if any(left.values()) else silent_code(seen)


def _told(state: State, queue: str, answers: Answers, changed: str, unchanged: str) -> int | None:
    found = known(answers, queue)
    if state.json:
        rows = [{"owner": name, **answer} for name, answer in found.items()]
        print_json({"queue": queue, "owners": rows, "silent": answers.silent_rows()})
        return silent_code(answers)
    for name, answer in found.items():
        click.echo(plain(f"{queue} of {name}: {changed if answer['changed'] else unchanged}"))
    say_silent(Output(stderr=True), answers)
    return silent_code(answers)


@click.command("set")
@click.argument("queue")
@click.argument("settings", nargs=-1, required=True, metavar="NAME=VALUE...")
@click.option("--create", is_flag=True, help="Make the queue where it is not there yet.")
@of_owners
@json_option
@connects
@click.pass_obj
def set_command(
    state: State, queue: str, settings: tuple[str, ...], create: bool, owner: str | None, timeout: float
) -> int | None:
    """Give QUEUE other settings, while it runs: `rpcmq queue set billing attempts=10 lease=60`.

    `rpcmq queue show QUEUE` lists them. What is not named stays as it is. Workers that have an item go on by the
    settings with which it was given. The exit code is 1 if no router has the queue, or one refuses.
    """
    values = _parsed(settings)
    check_queue(queue)

    def set_at(servers: Any, name: str) -> Any:
        return servers.change(name, "set", queue=queue, settings=values, create=create)

    answers = ask(state, owner, timeout, set_at)
    found = known(answers, queue)
    refusals = {name: answer["refusal"] for name, answer in found.items() if "refusal" in answer}
    if refusals:
        name, text = next(iter(refusals.items()))
        raise UsageError(f"queue {queue!r} of {name}: {text}")
    if state.json:
        rows = [{"owner": name, **answer} for name, answer in found.items()]
        print_json({"queue": queue, "owners": rows, "silent": answers.silent_rows()})
        return silent_code(answers)
    for name, answer in found.items():
        shown = ", ".join(f"{key}={answer['settings'][key]}" for key in values)
        click.echo(plain(f"{queue} of {name}: {shown}"))
    say_silent(Output(stderr=True), answers)
    return ExitCode.FAILED if answers.silent else None


def _parsed(settings: tuple[str, ...]) -> dict[str, Any]:
    values = {}
    for each in settings:
        name, equals, value = each.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{each!r}: expected NAME=VALUE, such as attempts=10")
        values[name] = parse_value(value)
    return values
