"""``rpcmq queue``: the work queues of a mesh, as their queue servers tell of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click
from rich.table import Table

from rpcmq.cli.options import State, connects, json_option
from rpcmq.cli.output import Output, add_row, print_folded, print_json, print_with_reasons, table
from rpcmq.cli.queue_controls import drain_command, pause_command, resume_command, set_command
from rpcmq.cli.queue_items import dead_command, drop_command, move_command, peek_command, retry_command
from rpcmq.cli.queue_owners import ask, known, of_owners, say_silent, silent_code
from rpcmq.cli.queue_periodic import periodic_command
from rpcmq.cli.queue_salvage import salvage_command
from rpcmq.cli.text import age, microseconds, plain

__all__ = ["queue_command"]

_STYLES = {"stands still": "red", "waits": "yellow", "paused": "yellow", "drains": "yellow"}
#: The states of items, in the order in which they are shown.
_STATES = ("ready", "postponed", "running", "dead")
#: Columns without which a table is shown where it does not fit.
_SPARE = ("postponed", "oldest dead", "oldest ready")


@click.group("queue")
def queue_command() -> None:
    """Show the work queues, and change something about them.

    A queue is that of one router, its owner; queues of one name at several routers are shown side by side. With keys
    this needs the right "call" in the exchange rpcmq.queue.admin: on "look" to show, on "change" to change, and, unless
    --owner is given, the right "admin" on "addresses".
    """


@queue_command.command("ls")
@of_owners
@json_option
@connects
@click.pass_obj
def ls_command(state: State, owner: str | None, timeout: float) -> int | None:
    """List the queues, with their numbers of items by state, and the age of the oldest.

    Marked are queues whose items wait without one that moves, with the reason; where the terminal is too narrow for
    that, it is said below the table. The exit code is 1 if a queue server does not answer.
    """
    answers = ask(state, owner, timeout, lambda servers, name: servers.look(name, "queues"))
    if state.json:
        print_json({"owners": list(answers.by_owner.values()), "silent": answers.silent_rows()})
        return silent_code(answers)
    output = Output()
    made = table(
        "Queues", "queue", "owner", "state", *(f">{name}" for name in _STATES), ">oldest ready", ">oldest dead", "why"
    )
    rows = [(row["queue"], name, row) for name, answer in answers.by_owner.items() for row in answer["queues"]]
    reasons = []
    for queue, name, row in sorted(rows, key=lambda each: each[:2]):
        oldest = (age(row["oldest"].get(state)) for state in ("ready", "dead"))
        numbers = (row[state] for state in _STATES)
        style = _STYLES.get(row["state"], "")
        add_row(made, (queue, name, row["state"], *numbers, *oldest, row["why"]), style)
        if row["why"]:
            reasons.append((f"{queue} of {name}: {row['why']}", style))
    if rows:
        print_with_reasons(output, made, reasons, *_SPARE)
    elif answers.by_owner:
        output.print("no queues yet")
    for name, answer in answers.by_owner.items():
        if elsewhere := _elsewhere(name, answer.get("by", {})):
            output.print(plain(elsewhere), style="yellow", markup=False)
        if answer["store"]["waits_for"]:
            text = f"the store of {name} does not answer: {answer['store']['waits_for']}"
            output.print(plain(text), style="red", markup=False)
    say_silent(output, answers)
    return silent_code(answers)


def _elsewhere(owner: str, by: dict[str, Any]) -> str:
    """The place where the items of ``owner`` are worked at, if it is not at its own router."""
    if not by.get("router") or by["router"] == owner:
        return ""
    process = f"pid {by['pid']} on {by['host']}"
    if by["is_heir"]:
        return f"{owner} is gone: router {by['router']} works at its items ({process}) until it is back"
    return (
        f"the queue server of {owner} ({process}) goes on by way of router {by['router']}; "
        f"if {owner} does not come back, SIGTERM ends that process in order"
    )


@queue_command.command("show")
@click.argument("queue")
@of_owners
@json_option
@connects
@click.pass_obj
def show_command(state: State, queue: str, owner: str | None, timeout: float) -> int | None:
    """Tell all about QUEUE: its items by state, what they wait for, how long they take, and its settings.

    The exit code is 1 if no router has it, or a queue server does not answer.
    """
    answers = ask(state, owner, timeout, lambda servers, name: servers.look(name, "show", queue=queue))
    found = known(answers, queue)
    if state.json:
        rows = [{"owner": name, **answer} for name, answer in found.items()]
        print_json({"queue": queue, "owners": rows, "silent": answers.silent_rows()})
        return silent_code(answers)
    output = Output()
    for name, row in found.items():
        style = _STYLES.get(row["state"], "")
        output.print(plain(f"{queue} of {name}: {_summary(row)}"), style=style, markup=False)
        for made in _tables(row):
            print_folded(output, made)
    say_silent(output, answers)
    return silent_code(answers)


def _summary(row: dict[str, Any]) -> str:
    if not row["why"]:
        return str(row["state"])
    since = f" since {age(row['still'])}" if row["still"] >= 1 else ""
    waiting = f"{row['ready']} items wait{since}" if row["ready"] != 1 else f"1 item waits{since}"
    return f"{waiting}: {row['why']}"


def _tables(row: dict[str, Any]) -> Iterator[Table]:
    items = table("Items", "state", ">items", ">oldest")
    for state in _STATES:
        add_row(items, (state, row[state], age(row["oldest"].get(state))))
    yield items
    if row["times"]:
        times = table("Times since the start", "of", ">count", ">p50", ">p90", ">p99", ">max")
        for name, each in row["times"].items():
            add_row(times, (name, each["count"], *(microseconds(each[q]) for q in ("p50", "p90", "p99", "max"))))
        yield times
    if row["counters"]:
        ends = table("Since the start", "what", ">times")
        for name, count in sorted(row["counters"].items()):
            add_row(ends, (name, count))
        yield ends
    settings = table("Settings", "setting", "value")
    for name, value in row["settings"].items():
        add_row(settings, (name, value))
    yield settings


for _command in (
    peek_command, dead_command, retry_command, drop_command, move_command, pause_command, resume_command,
    drain_command, set_command, periodic_command, salvage_command,
):  # fmt: skip
    queue_command.add_command(_command)
