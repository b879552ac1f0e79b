"""``rpcmq ship``."""

from __future__ import annotations

import logging
import os
from contextlib import closing
from pathlib import Path
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, Any

import click

from rpcmq.cli.exit_codes import failing
from rpcmq.cli.options import State, json_option, log_options, setting
from rpcmq.cli.output import print_json
from rpcmq.cli.stopping import stopped_by_signals
from rpcmq.cli.text import plain
from rpcmq.errors import UsageError
from rpcmq.latency.presence import elsewhere, is_log
from rpcmq.latency.sink_choice import SINKS
from rpcmq.server.log import log_event, start_logging

if TYPE_CHECKING:
    from rpcmq.latency.ship import Shipper

__all__ = ["ship_command"]

log = logging.getLogger("rpcmq.ship")

#: Interval between warnings about disk failures (seconds).
_SILENCE = 60.0


@click.command("ship")
@click.option(
    "--log",
    "directory",
    required=True,
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    envvar="RPCMQ_DISPATCH_LOG_DIRECTORY",
    show_envvar=True,
    help="The router's dispatch log.",
)
@click.option("--once", is_flag=True, help="Ship what is there, then end.")
@click.option("--sink", type=click.Choice(SINKS), default=SINKS[0], show_default=True, help="What to write.")
@setting("--interval", "dispatch_log.ship_seconds", "Seconds between scans of the spool.")
@setting("--keep-age", "dispatch_log.keep_seconds", "Seconds that shipped records are kept.")
@setting("--keep-bytes", "dispatch_log.keep_bytes", "Bytes of shipped records above which the oldest go.")
@setting(
    "--keep-ready", "dispatch_log.keep_ready_seconds", "Seconds that a segment stays in ready/ once it is in log/."
)
@click.option("--parent", type=int, hidden=True, help="End when this process is no longer the one that started us.")
@log_options
@json_option
@click.pass_obj
def ship_command(
    state: State,
    directory: Path,
    once: bool,
    sink: str,
    ship_seconds: float,
    keep_seconds: float,
    keep_bytes: int,
    keep_ready_seconds: float,
    parent: int | None,
    log_format: str,
    log_level: str,
) -> None:
    """Turn the spool of a router's dispatch log into Parquet segments, and look after them.

    It may be killed and started again at any moment: each record gets into one segment, and one only. It
    rewrites segments hourly into files of an hour each, sorted by topic and method, and removes what is too
    old or too much. SIGTERM and SIGINT end it when all that is complete has been shipped.

    Times are seconds, or text such as 10s, 5m, 30d; sizes are bytes, or text such as 512MiB, 10GiB.
    """
    from rpcmq.latency.retention import Limits
    from rpcmq.latency.ship import Shipper, account
    from rpcmq.latency.sink_choice import open_sink

    start_logging(log_format, log_level)

    def note(level: int, event: str, text: str, fields: dict[str, Any]) -> None:
        log_event(log, level, event, text, **fields)

    if once and not is_log(directory):
        raise UsageError(f"{directory}: no dispatch log here{elsewhere(directory)}")
    limits = Limits(keep_seconds, keep_bytes, keep_ready_seconds)
    with (
        failing(directory),
        stopped_by_signals() as stop,
        closing(Shipper(directory, open_sink(sink), limits, note)) as shipper,
    ):
        if once:
            shipper.run_once()
        else:
            note(
                logging.INFO, "shipping", f"shipping {directory} as {sink}", {"directory": str(directory), "sink": sink}
            )
            _run(shipper, stop, ship_seconds, parent)
        if once or state.json:
            _show(account(shipper.state), state.json)


def _run(shipper: Shipper, stop: Event, seconds: float, parent: int | None) -> None:
    """Ship until told to end, and once more at the end; retry on disk failures."""
    warned = -_SILENCE
    while True:
        last = stop.is_set() or parent not in (None, os.getppid())
        try:
            shipped = shipper.run_once()
            if shipped:
                log_event(log, logging.DEBUG, "shipped", f"{shipped} records", records=shipped)
        except OSError as error:
            if monotonic() - warned >= _SILENCE:
                warned = monotonic()
                text = f"{error.filename or 'dispatch log'}: {error.strerror or error}; trying again"
                log_event(log, logging.WARNING, "not shipped", text, problem=str(error))
        if last:
            return
        stop.wait(seconds)


def _show(what: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(what)
        return
    records, files = what["records"], what["files"]
    click.echo(
        f"{records['read']} records read = {records['written']} written + {records['quarantined']} quarantined; "
        f"{records['live']} in {files['live']} files ({what['bytes']['live']} bytes), {records['retired']} removed"
    )
    for each in what["boots"]:
        text = f"{each['router']}, started {each['boot']}: {each['given']} numbers given, {each['records']} records"
        if each["holes"]:
            text += f", {each['holes']} without one ({each['in_flight']} in flight, {each['dropped']} dropped)"
        if each["missing_segments"]:
            text += f", {each['missing_segments']} spool files missing"
        click.echo(plain(text))
