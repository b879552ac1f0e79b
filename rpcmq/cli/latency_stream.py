"""``rpcmq latency stream``."""

from __future__ import annotations

import logging
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import click

from rpcmq.cli.exit_codes import failing
from rpcmq.cli.latency_input import installed, master_option
from rpcmq.cli.options import State, json_option, log_options, positive
from rpcmq.cli.output import print_json
from rpcmq.cli.stopping import stopped_by_signals
from rpcmq.errors import RpcError, UsageError
from rpcmq.latency.change_log import LogEvent
from rpcmq.latency.presence import elsewhere, is_log
from rpcmq.server.log import log_event, start_logging

if TYPE_CHECKING:
    from rpcmq.latency.jobs import journal
    from rpcmq.latency.jobs.stream import Stream

__all__ = ["stream_command"]

log = logging.getLogger("rpcmq.latency.stream")


@click.command("stream")
@click.option(
    "--log",
    "directory",
    required=True,
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    envvar="RPCMQ_DISPATCH_LOG_DIRECTORY",
    show_envvar=True,
    help="The dispatch log.",
)
@click.option(
    "--out",
    required=True,
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the cells go, and what the stream needs to know of itself.",
)
@click.option("--once", is_flag=True, help="Take what is there, then end.")
@click.option(
    "--trigger",
    type=positive,
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Seconds from the start of a batch to that of the next.",
)
@click.option(
    "--max-files", type=click.IntRange(1), default=100, show_default=True, help="Segments of a batch, at most."
)
@master_option
@log_options
@json_option
@click.pass_obj
def stream_command(
    state: State,
    directory: Path,
    out: Path,
    once: bool,
    trigger: float,
    max_files: int,
    master: str | None,
    log_format: str,
    log_level: str,
) -> None:
    """Make latency cells of a dispatch log while it is written, each record once.

    `rpcmq latency report --cells DIR` reads them at any moment. It may be killed and started again at any
    moment, too. SIGTERM and SIGINT end it when the batch that is being made is complete.
    """
    if once and not is_log(directory):
        raise UsageError(f"{directory}: no dispatch log here{elsewhere(directory)}")
    start_logging(log_format, log_level)
    # Errors there are reported once, by us.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)

    def note(level: int, event: str, text: str, fields: dict[str, Any]) -> None:
        log_event(log, level, event, text, **fields)

    with (
        failing(),
        stopped_by_signals() as stop,
        closing(_open(directory, out, trigger, max_files, note)) as stream,
    ):
        note(logging.INFO, "starting", "starting Spark", {})
        if not is_log(directory):
            text = f"{directory}: no dispatch log here yet{elsewhere(directory)}; waiting for one"
            note(logging.WARNING, "no log", text, {"directory": str(directory)})
        try:
            _run(stream, stop, once, master)
        except RpcError as error:
            # A service manager may have told Spark to end as well.
            if not stop.is_set():
                raise
            note(logging.WARNING, "cut short", f"Spark ended first: {error}", {})
        note(logging.INFO, "stopped", "stopped", {})
        if once or state.json:
            _show(stream.state, state.json)


def _open(directory: Path, out: Path, trigger: float, max_files: int, note: LogEvent) -> Stream:
    with installed():
        from rpcmq.latency.jobs.stream import Stream
    return Stream(directory, out, every=trigger, max_files=max_files, note=note)


def _run(stream: Stream, stop: Event, once: bool, master: str | None) -> None:
    from rpcmq.latency.jobs.session import session_until

    with session_until(stop, "rpcmq latency stream", master) as spark:
        if once:
            stream.run_once(spark, stop)
        else:
            stream.run(spark, stop)


def _show(state: journal.State, as_json: bool) -> None:
    account = state.account()
    aside = {"files": len(account.set_aside), "records": sum(each.rows or 0 for each in account.set_aside)}
    if as_json:
        print_json(
            {
                "segments": state.segments,
                "records": state.records,
                "waiting": {"segments": len(state.waiting), "records": sum(state.waiting.values())},
                "set_aside": [
                    {"path": each.path, "reason": each.reason, "text": each.text, "records": each.rows}
                    for each in account.set_aside
                ],
            }
        )
        return
    click.echo(
        f"{state.records} records of {state.segments} segments counted, {sum(state.waiting.values())} of"
        f" {len(state.waiting)} wait; {aside['records']} of {aside['files']} set aside"
    )
    for each in account.set_aside:
        click.echo(f"{each.path}: {each.reason}: {each.text}")
