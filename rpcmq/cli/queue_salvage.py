"""``rpcmq queue salvage``: save a damaged file of queue items into a new one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rpcmq.cli.exit_codes import ExitCode, failing
from rpcmq.cli.options import State, json_option
from rpcmq.cli.output import Output, add_row, print_folded, print_json, table
from rpcmq.cli.text import counted, plain
from rpcmq.core.queue.story import Ending, Story
from rpcmq.errors import NotInstalled, RpcError

if TYPE_CHECKING:
    from rpcmq.store.salvage.report import Report

__all__ = ["salvage_command"]

_FILE = "queue.db"
#: Ranges of numbers that are shown of each queue.
_SHOWN = 10


@click.command("salvage")
@click.argument("source", metavar="DIR", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--to", required=True, metavar="NEW", type=click.Path(file_okay=False, path_type=Path),
    help="The directory for the new file, which is made.",
)  # fmt: skip
@click.option(
    "--unplaced", default="salvaged", show_default=True, metavar="QUEUE",
    help="The queue among whose dead items are those that cannot be placed.",
)  # fmt: skip
@click.option("--park", is_flag=True, help="Items that may be done are dead, too, for a person to look at.")
@json_option
@click.pass_obj
def salvage_command(state: State, source: Path, to: Path, unplaced: str, park: bool) -> int | None:
    """Save what can be read of the damaged file of queue items in DIR into a new one.

    DIR is the `queue.dir` of a router that is stopped, or the file in it. Nothing there is changed, and no router is
    asked. Each item is saved whose row is as it was written, under its number, so that receipts go on to be right; the
    account says which are lost, and which may run though they were done. Then start the router with
    `--queue-dir NEW`.

    An item of which it is not known whose it was, or whether it was done long ago, is among the dead of `--unplaced`:
    look at it with `rpcmq queue peek salvaged --state dead --args`, and have it run with `rpcmq queue move`. The exit
    code is 1 if anything is lost or in doubt.
    """
    try:
        from rpcmq.store.contract import Lane, StoreError, StoreFailed
        from rpcmq.store.salvage.saving import Choices, salvage
    except ModuleNotFoundError as error:
        raise NotInstalled(f"{error.name} is not installed: pip install 'rpcmq[queue]'") from None
    from rpcmq.client.queue.protocol import check_queue
    from rpcmq.core.queue.lanes import HORIZON

    check_queue(unplaced)
    now = int(time.time() * 1000)

    def story(text: str) -> bytes:
        return Story().with_ending(Ending(now, "", "salvaged", text)).to_bytes()

    def horizon(lane: Lane) -> str:
        return f"{HORIZON} {lane.priority} {lane.queue}"

    path = source / _FILE if source.is_dir() else source
    try:
        with failing(path):
            report = salvage(path, to / _FILE, Choices(unplaced, park, now, story, horizon))
    except (StoreError, StoreFailed) as error:
        raise RpcError(str(error)) from None
    if state.json:
        print_json({"from": str(path), "to": str(to / _FILE), "whole": report.is_whole, **asdict(report)})
    else:
        _show(report, path, to / _FILE, unplaced)
    return None if report.is_whole else ExitCode.FAILED


def _show(report: Report, path: Path, to: Path, unplaced: str) -> None:
    output = Output()
    made = table("Saved", "queue", ">ready", ">postponed", ">dead", ">lost", ">may run again")
    for name, queue in sorted(report.queues.items()):
        lost = f"{queue.lost_count}{'+' if queue.is_end_lost else ''}"
        add_row(made, (name, queue.ready, queue.postponed, queue.dead, lost, queue.may_run_again))
    print_folded(output, made)
    for line in _lines(report, path, unplaced):
        output.print(plain(line), markup=False)
    output.print(plain(f"{'everything' if report.is_whole else 'the rest'} is in {to}"), markup=False)


def _lines(report: Report, path: Path, unplaced: str) -> Iterator[str]:
    """All that is wrong, in sentences."""
    if report.unreadable:
        yield f"{path}: {len(report.unreadable)} of {counted(report.pages, 'page')} cannot be read"
    if report.mended:
        yield f"{path}: a bit was put right in {counted(len(report.mended), 'page')}"
    if not report.is_checked:
        yield f"{path}: its pages have no checksums, since it was begun by an earlier version; only rows were checked"
    if report.log_pages_lost:
        yield (
            f"{path}-wal: {counted(report.log_pages_lost, 'page')} cannot be read: items that were put since may be "
            "lost, and those that were done since run again"
        )
    if report.is_last_commit_left_out:
        yield (
            f"{path}-wal: its last commit is not whole, and is left out: it was under way when the process ended, or "
            "the disk has changed it since"
        )
    for name, queue in sorted(report.queues.items()):
        for priority, first, last in queue.lost[:_SHOWN]:
            yield f"queue {name!r}: lost {priority}/{first}" + (f" to {priority}/{last}" if last > first else "")
        if len(queue.lost) > _SHOWN:
            more = counted(len(queue.lost) - _SHOWN, "more range")
            yield f"queue {name!r}: lost: {more}, which --json names"
        for priority in queue.is_end_lost:
            yield f"queue {name!r}: items of priority {priority} that were put last may be lost, how many is not known"
        if queue.may_run_again:
            yield (
                f"queue {name!r}: {counted(queue.may_run_again, 'item')} may be done already: the record of that is "
                "lost; --park has them among the dead"
            )
    if report.unplaced:
        yield f"{counted(report.unplaced, 'item')} cannot be placed, and may be done: the dead ones of {unplaced!r}"
    yield from report.notices
