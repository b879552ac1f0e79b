"""The report: of a dispatch log, or of cells that were stored.

Cells are stored, and all figures are rollups of them, which engines may make of the records as well. Only the slowest
calls, and those of which nobody knows the end, are looked for one by one. Which engine does it makes no difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from time import monotonic

from rpcmq.latency.analysis.account import Account
from rpcmq.latency.analysis.errors import attach
from rpcmq.latency.analysis.series import METHOD, Series, merged
from rpcmq.latency.analysis.slow import findings
from rpcmq.latency.jobs.engine import Cells, Engine, Level, Only, Outline, Records
from rpcmq.latency.jobs.hedged_cells import read_hedged
from rpcmq.latency.jobs.runs import joined
from rpcmq.latency.report.model import Report
from rpcmq.latency.selection import Selection

__all__ = ["CELLS", "ERROR_CLASSES", "METHODS", "coarser", "in_detail", "report", "report_of_cells", "window_for"]

#: Directory of the cells, in that of the report.
CELLS = "cells"
#: Lengths of windows (seconds) that people count in, and how many of a shorter one make a longer one.
_LENGTHS = (1, 2, 5, 10, 15, 30, 60)
_TIMES = (1, 2, 5, 10, 15, 30, 60, 120, 240, 360, 720, 1440)
#: Windows that a report has, about; and at most, where their length was asked for.
_WINDOWS, _WINDOWS_ASKED_FOR = 120, 1000
#: Most methods whose servers are examined, by total time; most callers, by records.
METHODS, _CALLERS = 200, 200
#: Most kinds of raised errors that are counted, those with the most records.
ERROR_CLASSES = 1000
#: Most windows of all methods together, which limits the number of methods examined.
_METHOD_WINDOWS = 6000
#: Records of the traces of the slowest calls.
_TRACED = 2000

#: Told the name of a step; what it returns is entered for as long as the step takes.
Step = Callable[[str], AbstractContextManager[object]]


def report(
    engine: Engine,
    selection: Selection,
    out: Path,
    *,
    window_seconds: int | None = None,
    top: int = 20,
    step: Step = nullcontext,
) -> Report:
    """Read a dispatch log, store its cells in the directory ``CELLS`` of ``out``, and make the report.

    Args:
        engine: what reads and adds up.
        selection: of a log.
        out: the report's directory; it is made.
        window_seconds: length of the windows; None: one that suits the range of time, a minute at most.
        top: how many of the slowest calls are looked for, and of those whose end nobody knows.
        step: told what is being done; see ``Step``.

    Raises:
        UsageError: there is no such log.
        ManifestDamaged: its manifest is not one.
        Changed: its files go faster than they can be read.
        OSError: what was made cannot be written.
    """
    timed = _Timed(step)
    with ExitStack() as stack:
        with timed("count"):
            records = stack.enter_context(engine.log(selection))
        return _of_records(records, selection, out, window_seconds, top, timed)


def _of_records(
    records: Records, selection: Selection, out: Path, window_seconds: int | None, top: int, timed: _Timed
) -> Report:
    since, until = _seconds(records.first_us), _seconds(records.last_us)
    window = window_seconds or window_for((until or 0.0) - (since or 0.0))
    with timed("cells"):
        records.make_cells(window, out / CELLS)
    # That of what the cells were made from.
    account = records.account
    made = _report(timed, records, window, window_seconds is not None, account)
    made.log, made.since, made.until = str(selection.path), since, until
    if made.whole.records and top:
        with timed("slowest calls"):
            made.slowest = records.slowest(top, _TRACED)
            made.unknown = records.unknown(top) if account.unknown else []
    with timed("hedged calls"):
        made.hedged = records.hedged()
    made.hedged_left_out, made.server = selection.without_whole_calls, selection.where.get("server")
    # What was counted in fact, should a file have changed after it was counted first.
    account.counted += made.whole.records - account.in_range
    account.in_range = made.whole.records
    return _completed(made, account, timed)


def report_of_cells(
    engine: Engine,
    selection: Selection,
    *more: Path,
    window_seconds: int | None = None,
    step: Step = nullcontext,
) -> Report:
    """The report of cells that earlier runs, or a stream, have stored. Single calls are not in it.

    Args:
        engine: what reads and adds up.
        selection: of a directory of cells; a window belongs to a range of time if it begins in it.
        more: further directories.
        window_seconds: length of the windows, a multiple of that of the stored ones; None: one that suits the range.
        step: see ``report``.

    Raises:
        UsageError: there are no cells; or records would count twice; or the windows do not fit.
        CellsDamaged: the cells are of a version that is not known.
    """
    timed = _Timed(step)
    directories = (selection.path, *more)
    run = joined(directories, window_seconds)
    account = run.account
    with engine.cells(selection, *more) as stored:
        made = _report(timed, stored, run.window_seconds, window_seconds is not None, account)
        hedged, made.hedged_left_out = read_hedged(selection, *more)
        made.hedged, made.server = hedged.by_method(stored.calls), selection.where.get("server")
    made.log = ", ".join(map(str, directories))
    account.in_range, account.unknown = made.whole.records, made.whole.outcomes.get("unknown", 0)
    return _completed(made, account, timed)


def _completed(made: Report, account: Account, timed: _Timed) -> Report:
    made.account = account
    made.findings = findings(made.whole, made.windows, made.methods, made.method_windows, made.servers, account)
    made.seconds = timed.seconds
    return made


def window_for(seconds: float) -> int:
    """The length of windows that suits a range of time: about 120 of them, but no longer than a minute."""
    return next((length for length in _LENGTHS if seconds <= length * _WINDOWS), _LENGTHS[-1])


class _Timed:
    """Steps, and how long they took."""

    def __init__(self, step: Step) -> None:
        self._step = step
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        begin = monotonic()
        with self._step(name):
            yield
        self.seconds[name] = round(monotonic() - begin, 3)


def _seconds(microseconds: int | None) -> float | None:
    return None if microseconds is None else microseconds / 1e6


# --- figures ------------------------------------------------------------------------------------


def _report(timed: _Timed, cells: Cells, window: int, is_asked_for: bool, account: Account) -> Report:
    """The report but for single calls and findings; its range is that of the windows."""
    with timed("outline"):
        # One more than are shown, to know whether there are more.
        outline = cells.outline(METHODS + 1, _CALLERS + 1, ERROR_CLASSES)
    if outline.first is None or outline.last is None:
        return Report("", None, None, window, account, Series({}))
    length = outline.last - outline.first + window
    window = coarser(window, length, _WINDOWS_ASKED_FOR if is_asked_for else _WINDOWS)
    with timed("figures"):
        found = cells.series(_levels(outline, window, length))
        whole = _filled(found, outline)
    return Report(
        log="",
        since=float(outline.first),
        until=float(outline.first + length),
        window_seconds=window,
        account=account,
        whole=whole,
        windows=sorted(found["windows"], key=_begin),
        methods=sorted(found["methods"], key=_time, reverse=True),
        method_windows=sorted(found["method windows"], key=_begin),
        servers=sorted(found["servers"], key=_time, reverse=True),
        callers=sorted(found["callers"], key=_time, reverse=True),
        routers=sorted(found["routers"], key=_time, reverse=True),
    )


def _begin(series: Series) -> int:
    return series.window or 0


def _time(series: Series) -> float:
    return series.total.sum


def _levels(outline: Outline, window: int, length: int) -> dict[str, Level]:
    """Return the rollups to request from the engine; those ``_filled`` can derive are left out."""
    shown = outline.methods[:METHODS]
    detailed = shown[: in_detail(window, length)]
    has_rest = len(detailed) < len(outline.methods)
    has_more = len(shown) < len(outline.methods)
    has_more_callers = len(outline.callers) > _CALLERS
    # Looking for a cell's names in a list takes as long as adding it up: not where all are wanted.
    methods = Only(METHOD, shown) if has_more else None
    callers = Only(("client",), [(name,) for name in outline.callers[:_CALLERS]]) if has_more_callers else None
    levels = {
        # They are many, and nobody looks at where in them the time went.
        "method windows": Level(METHOD, window, Only(METHOD, detailed) if has_rest else None, ("total",)),
        "windows": Level((), window),
        "servers": Level((*METHOD, "server"), None, methods),
        "callers": Level(("client",), None, callers),
    }
    if has_more:
        levels["methods"] = Level(METHOD)
    if len(outline.routers) > 1:
        levels["routers"] = Level(("router",))
    return levels


def _filled(found: dict[str, list[Series]], outline: Outline) -> Series:
    """Put into ``found`` the levels that it does not have; what all of it adds up to."""
    found.setdefault("methods", merged(found["servers"], METHOD))
    [whole] = merged(found["windows"], ())
    if "routers" not in found:
        only = Series({"router": outline.routers[0]})
        only.add(whole)
        found["routers"] = [only]
    attach(outline.raised, found["methods"], whole)
    return whole


def in_detail(window: int, length: int) -> int:
    """Return how many methods are examined by windows of ``window`` in a range of ``length`` seconds."""
    return max(1, _METHOD_WINDOWS * window // length)


def coarser(window: int, length: int, most: int = _WINDOWS) -> int:
    """A multiple of ``window`` of which there are at most so many in ``length``, about."""
    return window * next((times for times in _TIMES if length <= times * window * most), length // (window * most) + 1)
