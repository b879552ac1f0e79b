"""``rpcmq queue periodic``: the items that are put again and again."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from rpcmq.cli.exit_codes import ExitCode
from rpcmq.cli.options import State, connects, json_option
from rpcmq.cli.output import Output, add_row, print_json, print_with_reasons, table
from rpcmq.cli.queue_owners import Answers, ask, known, of_owners, say_silent, silent_code
from rpcmq.cli.text import plain
from rpcmq.errors import RpcError

__all__ = ["periodic_command"]

#: Columns without which a table is shown where it does not fit.
_SPARE = ("missed", "cron", "owner", "zone", "last")


@click.command("periodic")
@click.argument("queue", required=False)
@click.option("--remove", metavar="NAME", help="Stop putting the periodic item NAME of QUEUE.")
@of_owners
@json_option
@connects
@click.pass_obj
def periodic_command(
    state: State, queue: str | None, remove: str | None, owner: str | None, timeout: float
) -> int | None:
    """List the periodic items, or those of QUEUE: when each is put next, and by which owner.

    Times are those of the clocks in the item's time zone; those of --json have its offset from UTC. Where one is not
    put, the reason is said, below the table where the terminal is too narrow. With --remove the items that are in the
    queue already stay there, and a program that declares the periodic item again has it put again. The exit code is 1
    if there is none of that name, no router has QUEUE, or a queue server does not answer.
    """
    if remove is not None:
        if not queue:
            raise click.UsageError("--remove needs the QUEUE of the periodic item")
        return _remove(state, queue, remove, owner, timeout)
    answers = ask(state, owner, timeout, lambda servers, name: servers.look(name, "periodic", queue=queue or ""))
    found = known(answers, queue) if queue else answers.by_owner
    rows = [{"owner": name, **row} for name, answer in found.items() for row in answer]
    if state.json:
        print_json({"periodic": rows, "silent": answers.silent_rows()})
        return silent_code(answers)
    output = Output()
    # What is aligned to the right stays on one line.
    made = table("Periodic items", "queue", "name", "owner", "cron", "zone", ">next", ">last", "missed", "why")
    reasons = []
    for row in sorted(rows, key=lambda each: (each["queue"], each["name"], each["owner"])):
        cells = (row[each] for each in ("queue", "name", "owner", "cron", "zone"))
        style = "yellow" if row["why"] else ""
        add_row(made, (*cells, _time(row["next"]), _time(row["last"]), row["missed"], row["why"]), style)
        if row["why"]:
            reasons.append((f"{row['name']} of {row['queue']} of {row['owner']}: {row['why']}", style))
    if rows:
        print_with_reasons(output, made, reasons, *_SPARE)
    elif not answers.silent:
        output.print("no periodic items")
    say_silent(output, answers)
    return silent_code(answers)


def _time(shown: str | None) -> str:
    """A time without its offset: the zone is in a column of its own, and terminals are narrow."""
    return "" if shown is None else datetime.fromisoformat(shown).strftime("%Y-%m-%d %H:%M:%S")


def _remove(state: State, queue: str, name: str, owner: str | None, timeout: float) -> int | None:
    def remove(servers: Any, at: str) -> Any:
        return servers.change(at, "remove_periodic", queue=queue, name=name)

    answers: Answers = ask(state, owner, timeout, remove)
    found = known(answers, queue)
    owners = [at for at, answer in found.items() if answer["was_here"]]
    if not owners and not answers.silent:
        raise RpcError(f"queue {queue!r} has no periodic item {name!r}; rpcmq queue periodic {queue} lists them")
    if state.json:
        print_json({"queue": queue, "name": name, "owners": owners, "silent": answers.silent_rows()})
        return ExitCode.FAILED if answers.silent else None
    for at in owners:
        click.echo(plain(f"{queue} of {at}: periodic item {name} is put no more"))
    say_silent(Output(stderr=True), answers)
    return ExitCode.FAILED if answers.silent else None
