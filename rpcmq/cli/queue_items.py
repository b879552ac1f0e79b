"""``rpcmq queue peek``, ``dead``, ``retry``, ``drop`` and ``move``: the items of a queue."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from rpcmq.cli.exit_codes import ExitCode
from rpcmq.cli.options import State, connects, json_option
from rpcmq.cli.output import Output, add_row, print_folded, print_json, table, typed_json
from rpcmq.cli.queue_owners import Answers, ask, known, of_owners, say_silent, silent_code
from rpcmq.cli.text import age, counted, plain, shortened
from rpcmq.client.queue.protocol import FIRST_MARK, check_queue
from rpcmq.errors import UsageError

if TYPE_CHECKING:
    from rpcmq.client.queue.queue_servers import QueueServers

__all__ = ["dead_command", "drop_command", "move_command", "peek_command", "retry_command"]

_STATES = ("ready", "postponed", "running", "dead")
#: Bounds of one look, as the queue server has them: bytes of messages, and items where these are decoded.
_LOOK_BYTES, _MOST_DECODED = 4 << 20, 100
#: Most bytes of a message that a row does not count: its header, and the name of its method.
_UNCOUNTED = 1024
_SPARE = ("key", "bytes", "attempts", "method")
_all_option = click.option("--all", "is_all", is_flag=True, help="All dead items of QUEUE.")
_count_option = click.option(
    "--count", type=click.IntRange(1, 1000), default=20, show_default=True, help="Number of items of each owner."
)


@click.command("peek")
@click.argument("queue")
@click.option("--state", "of", type=click.Choice(_STATES), default="ready", show_default=True, help="Which items.")
@_count_option
@click.option("--args", "has_args", is_flag=True, help="Decode and show arguments and contexts, of at most 100 items.")
@of_owners
@json_option
@connects
@click.pass_obj
def peek_command(
    state: State, queue: str, of: str, count: int, has_args: bool, owner: str | None, timeout: float
) -> int | None:
    """Show the first items of QUEUE, without taking any.

    Of the ready ones the next is the first, of the postponed ones that which is due first. The first column names an
    item for `rpcmq queue retry`, `drop` and `move`. Of an id, a key or a method of more than 64 characters the
    beginning and the end are shown; `--json` has all of it. Of each owner 4 MiB of items are shown at the most; where
    there are more than these, and --count asks for more, a line on stderr says so, and `is_cut` in --json. The exit
    code is 1 if no router has the queue, or a queue server does not answer.
    """
    cut = set[str]()

    def look(servers: QueueServers, name: str) -> Any:
        rows: list[dict[str, Any]] | None = (
            servers.messages(name, queue, of, count)
            if has_args
            else servers.look(name, "items", queue=queue, state=of, most=count)
        )
        if rows and len(rows) < count and _is_full(rows, has_args):
            figures = servers.look(name, "show", queue=queue)
            if figures and figures[of] > len(rows):
                cut.add(name)
        return rows

    answers = ask(state, owner, timeout, look)
    found = known(answers, queue)
    for name in cut:
        bound = f"{_MOST_DECODED} items, or 4 MiB of them," if has_args else "4 MiB of them"
        text = f"rpcmq: queue {queue} of {name} has more items that are {of}: {bound} are shown at the most"
        click.echo(plain(text), err=True)
    for row in (row for rows in found.values() for row in rows):
        row.pop("mark", None)
    if state.json:
        for row in (row for rows in found.values() for row in rows if has_args):
            row |= {key: json.loads(typed_json(row[key])) for key in ("context", "args") if key in row}
        _print_json(queue, found, answers, {name: {"is_cut": name in cut} for name in found})
        return silent_code(answers)
    output = Output()
    when = {"postponed": ("due_in", ">due in"), "dead": ("dead_for", ">dead for")}.get(of)
    columns = ("item", "owner", "id", "method", ">age", *([when[1]] if when else []), ">bytes", "key", ">attempts")
    reason = ["reason"] if any(row["reason"] for rows in found.values() for row in rows) else []
    made = table(f"Items of {queue}, {of}", *columns, *reason, *(["args", "context"] if has_args else []))
    for name, rows in found.items():
        for row in rows:
            times = [age(row["age"]), *([age(row[when[0]])] if when else [])]
            names = (row["item"], name, shortened(row["id"]), shortened(row.get("method")))
            cells = (*names, *times, row.get("bytes"), shortened(row["key"]))
            add_row(
                made,
                (
                    *cells,
                    row["attempts"] or "",
                    *([row["reason"]] if reason else []),
                    *(_message(row) if has_args else ()),
                ),
            )
    if made.row_count:
        print_folded(output, made, *_SPARE)
    else:
        output.print(plain(f"queue {queue} has no items that are {of}"), markup=False)
    say_silent(output, answers)
    return silent_code(answers)


def _is_full(rows: list[dict[str, Any]], has_args: bool) -> bool:
    """Return whether a queue server shows no more than ``rows`` at once."""
    size = sum(row.get("bytes", 0) + _UNCOUNTED for row in rows)
    return size >= _LOOK_BYTES or (has_args and len(rows) >= _MOST_DECODED)


def _message(row: dict[str, Any]) -> tuple[str, str]:
    if "args" not in row:
        return row.get("undecoded", ""), ""
    return typed_json(row["args"]), "" if row["context"] is None else typed_json(row["context"])


@click.command("dead")
@click.argument("queue")
@click.option(
    "--count", type=click.IntRange(1, 100_000), default=20, show_default=True, help="Number of items of each owner."
)
@click.option("--traceback", is_flag=True, help="Tell the story of each attempt.")
@of_owners
@json_option
@connects
@click.pass_obj
def dead_command(
    state: State, queue: str, count: int, traceback: bool, owner: str | None, timeout: float
) -> int | None:
    """Show the dead items of QUEUE, those that died first before the others, each with the reason.

    Of an id or a method of more than 64 characters the beginning and the end are shown, and all of it by `--traceback`
    and `--json`. Many are asked for part by part, each of which has --timeout for itself. The exit code is 1 if no
    router has the queue, or a queue server does not answer.
    """

    def look(servers: QueueServers, name: str) -> Any:
        return servers.dead(name, queue, count, traceback)

    answers = ask(state, owner, timeout, look)
    found = known(answers, queue)
    if state.json:
        _print_json(queue, found, answers)
        return silent_code(answers)
    output = Output()
    if not any(found.values()):
        output.print(plain(f"queue {queue} has no dead items"), markup=False)
    elif traceback:
        for name, rows in found.items():
            for row in rows:
                _tell(output, name, row)
    else:
        made = table(f"Dead items of {queue}", "item", "owner", "id", "method", ">attempts", ">dead for", "reason")
        for name, rows in found.items():
            for row in rows:
                names = (row["item"], name, shortened(row["id"]), shortened(row.get("method")))
                add_row(made, (*names, row["attempts"], age(row["dead_for"]), row["reason"]))
        print_folded(output, made, "method", "attempts")
    say_silent(output, answers)
    return silent_code(answers)


def _tell(output: Output, owner: str, row: dict[str, Any]) -> None:
    put = "" if row["age"] is None else f"put {age(row['age'])} ago"
    what = ", ".join(each for each in (row["id"], row.get("method", ""), put) if each) or row["reason"]
    head = f"{row['item']} of {owner}: {what}"
    output.print(plain(head), markup=False, style="bold")
    for each in row["story"]:
        worker = f" at {each['worker']}" if each["worker"] else ""
        output.print(plain(f"  {age(each['ago'])} ago{worker}: {each['outcome']}"), markup=False)
        for line in each["text"].splitlines():
            output.print(plain(f"    {line}"), markup=False)


@click.command("retry")
@click.argument("queue")
@click.argument("items", nargs=-1, metavar="[ITEM]...")
@_all_option
@of_owners
@json_option
@connects
@click.pass_obj
def retry_command(
    state: State, queue: str, items: tuple[str, ...], is_all: bool, owner: str | None, timeout: float
) -> int | None:
    """Try dead items of QUEUE again, as often as new ones: each ITEM, or all.

    `rpcmq queue dead QUEUE` names them in the first column. Damaged ones stay dead. Where several owners have dead
    items, --owner says whose ITEM is meant. The exit code is 1 if an ITEM is not among the dead, which is named, or a
    queue server does not answer. --all is done part by part, of which each is told, and has --timeout for itself;
    Ctrl-C leaves the rest as it is. That there are none is no error.
    """
    return _change(state, queue, items, is_all, owner, timeout, "retry", "put again")


@click.command("drop")
@click.argument("queue")
@click.argument("items", nargs=-1, metavar="[ITEM]...")
@_all_option
@of_owners
@json_option
@connects
@click.pass_obj
def drop_command(
    state: State, queue: str, items: tuple[str, ...], is_all: bool, owner: str | None, timeout: float
) -> int | None:
    """Delete dead items of QUEUE: each ITEM, or all.

    Items are named, and exit codes are, as for `rpcmq queue retry`.
    """
    return _change(state, queue, items, is_all, owner, timeout, "drop", "dropped")


@click.command("move")
@click.argument("queue")
@click.argument("items", nargs=-1, metavar="[ITEM]...")
@click.option("--to", required=True, metavar="OTHER", help="The queue to move them to; made if it is not there.")
@click.option("--ready", is_flag=True, help="All items that are ready, and no worker has.")
@_all_option
@of_owners
@json_option
@connects
@click.pass_obj
def move_command(
    state: State, queue: str, items: tuple[str, ...], to: str, ready: bool, is_all: bool, owner: str | None,
    timeout: float,
) -> int | None:  # fmt: skip
    """Move items of QUEUE to the queue OTHER of the same owner: each dead ITEM, all dead ones, or all ready ones.

    None is lost, and none is in both. Dead ones are tried as often as new ones. Items are named, and exit codes
    are, as for `rpcmq queue retry`.
    """
    if ready and (items or is_all):
        raise click.UsageError("--ready goes with neither ITEM nor --all, which are about dead items")
    if check_queue(to) == queue:
        raise UsageError(f"the items of queue {queue!r} are there already: give another one with --to")
    more = {"to": to, "state": "ready" if ready else "dead"}
    return _change(state, queue, items, is_all or ready, owner, timeout, "move", f"moved to {to}", more)


def _change(
    state: State, queue: str, items: tuple[str, ...], is_all: bool, owner: str | None, timeout: float, method: str,
    done: str, more: dict[str, Any] | None = None,
) -> int | None:  # fmt: skip
    keys = None if is_all else [_key(each) for each in items]
    if bool(items) == is_all:
        raise click.UsageError("give the items, or --all, and not both")
    if keys is not None and owner is None:
        owner = _only_owner(state, queue, timeout)

    made = Counter[str]()

    def change(servers: QueueServers, name: str) -> Any:
        mark: Any = FIRST_MARK if is_all else None
        while True:
            answer = servers.change(name, method, queue=queue, items=keys, mark=mark, **(more or {}))
            if answer is None:
                return None
            made[name] += answer["items"]
            if (mark := answer["mark"]) is None:
                return {"items": made[name], "missed": answer["missed"]}
            click.echo(plain(f"{queue} of {name}: {counted(made[name], 'item')} {done} so far"), err=True)

    answers = ask(state, owner, timeout, change)
    found = known(answers, queue)
    if state.json:
        _print_json(queue, found, answers)
    else:
        nothing = f"no {(more or {}).get('state', 'dead')} items: nothing to do"
        for name, answer in found.items():
            text = f"{counted(answer['items'], 'item')} {done}" if answer["items"] or keys is not None else nothing
            click.echo(plain(f"{queue} of {name}: {text}"))
            for item, why in answer["missed"].items():
                click.echo(plain(f"rpcmq: item {item} of queue {queue} of {name} was not {done}: {why}"), err=True)
        say_silent(Output(stderr=True), answers)
    return ExitCode.FAILED if any(answer["missed"] for answer in found.values()) else silent_code(answers)


def _only_owner(state: State, queue: str, timeout: float) -> str:
    """The owner of ``queue``, where there is one only: an item's name is that of one owner."""
    found = known(ask(state, None, timeout, lambda servers, name: servers.look(name, "show", queue=queue)), queue)
    if len(found) > 1:
        raise UsageError(f"several routers have a queue {queue!r} ({', '.join(found)}): say --owner")
    return next(iter(found))


def _key(text: str) -> tuple[int, int]:
    if re.fullmatch(r"[0-9]/[0-9]{1,18}", text) is None:
        raise click.UsageError(f"{text!r} is no item: `rpcmq queue dead QUEUE` names them in the first column, as 0/17")
    priority, _, number = text.partition("/")
    return int(priority), int(number)


def _print_json(
    queue: str, found: dict[str, Any], answers: Answers, more: dict[str, dict[str, bool]] | None = None
) -> None:
    rows = [
        {"owner": name, **(each if isinstance(each, dict) else {"items": each}), **(more or {}).get(name, {})}
        for name, each in found.items()
    ]
    print_json({"queue": queue, "owners": rows, "silent": answers.silent_rows()})
