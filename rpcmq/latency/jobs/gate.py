"""File checks: select the files of a dispatch log that are safe to read, and set aside the others.

Spark fails a whole job for one file that is damaged, and reads a column that is missing as nulls, a byte that has
flipped as another number. So each file is looked at before: that it is what the shipper wrote, byte by byte, and of a
schema that we know. What is not is set aside with a reason, and counted.

=============  ====================================================================================================
reason         the file
=============  ====================================================================================================
missing        is in the manifest and not in the directory
truncated      is shorter than what was written
corrupt        is not what was written, or no Parquet
version        is of another version of the schema
columns        has not the columns of its version
jsonl          is JSON Lines, which are for looking at
unreadable     cannot be read: the system says why; or Spark could not
foreign        lies in ``ready/`` or ``log/``, and the shipper did not make it
unlisted       is the shipper's, which has not said so in the manifest: it was stopped, or is just about to
others         were in quarantine before: the shipper's reasons
=============  ====================================================================================================
"""

from __future__ import annotations

import fcntl
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_exponential

from rpcmq.errors import UsageError
from rpcmq.latency import manifest, schema
from rpcmq.latency.analysis.account import Account, Life, SetAside
from rpcmq.latency.columns import ARROW
from rpcmq.latency.compact import inputs_of
from rpcmq.latency.files import Unsuitable, open_regular, read_regular
from rpcmq.latency.log_state import File, State
from rpcmq.latency.presence import complete_files
from rpcmq.latency.segment import Damaged

__all__ = ["Passed", "Problem", "add_router_gaps", "inspect", "problem_of", "unreadable"]

_PIECE = 1 << 20
#: Files checked concurrently: reading and checksums run outside of Python.
_AT_A_TIME = 4
#: Grace for a running shipper to name a file that it has written (seconds).
_PATIENCE = 2.0
#: Most rounds of checks while a shipper removes files.
_LOOKS = 5


class Problem(NamedTuple):
    """A problem of a file: one of the words above, and a sentence."""

    reason: str
    text: str


@dataclass(slots=True)
class Passed:
    """Files that may be read.

    Attributes:
        files: each record of the range is in one of them, once; they may have records out of the range, too.
        account: with ``shipped``, ``set_aside`` and what the manifest alone knows.
    """

    files: list[File]
    account: Account


def inspect(directory: Path, since: float | None, until: float | None, unreadable: Mapping[str, str]) -> Passed:
    """Look at the files of a log that have records of a range of time.

    Args:
        directory: the log's.
        since, until: seconds since 1970, the latter not in it; None: no limit.
        unreadable: paths that Spark could not read before, and what it said.

    Raises:
        UsageError: there is no such directory.
        ManifestDamaged: the manifest is not one.
        OSError: the directory cannot be read.
    """
    if not directory.is_dir():
        raise UsageError(f"{directory}: no such directory")
    state, files, problems = _looked_at(directory, since, until, unreadable)
    account = Account()
    account.set_aside += [SetAside(file.path, *problem, file.rows) for file, problem in problems]
    account.set_aside += _strays(directory)
    account.set_aside += _quarantined(directory / "quarantine")
    account.files = len(files)
    account.shipped = sum(file.rows for file in files) + sum(each.rows or 0 for each in account.set_aside)
    account.waiting = 0 if _is_shipped_now(directory) else complete_files(directory)
    add_router_gaps(account, state)
    return Passed(files, account)


def add_router_gaps(account: Account, state: State) -> None:
    """Put into ``account`` what only the manifest knows: numbers that routers gave and that have no record."""
    over = state.unsealed()
    account.unsealed = [
        Life(boot.router, number, boot.last_us / 1e6, boot.holes - boot.dropped, boot.unwritten)
        for (_, number), boot in over.items()
    ]
    for life, boot in state.boots.items():
        account.holes += boot.holes
        account.dropped += boot.dropped
        account.missing_segments += boot.missing_segments
        # Messages in progress in a life that goes on have no record yet.
        account.open += 0 if boot.final or life in over else max(0, boot.holes - boot.dropped)


# --- what the manifest names --------------------------------------------------------------------


def _looked_at(
    directory: Path, since: float | None, until: float | None, unreadable: Mapping[str, str]
) -> tuple[State, list[File], list[tuple[File, Problem]]]:
    """The manifest's state, and its files of the range: those that are good, and the others."""
    state = manifest.read(directory)
    for _ in range(_LOOKS):
        files = [file for file in state.live.values() if _is_in_range(file, since, until)]

        def look(file: File) -> Problem | None:
            said = unreadable.get(file.path)
            return Problem("unreadable", said) if said else problem_of(directory / file.path, file)

        with ThreadPoolExecutor(_AT_A_TIME) as executor:
            found = list(zip(files, executor.map(look, files), strict=True))
        gone = [file.path for file, problem in found if problem and problem.reason == "missing"]
        before, state = state, manifest.read(directory) if gone else state
        if not gone or all(path in state.live for path in gone):
            break
        # The shipper has removed them, or put their records elsewhere, since the manifest was read.
    return before, [file for file, problem in found if problem is None], [(f, p) for f, p in found if p]


def _is_in_range(file: File, since: float | None, until: float | None) -> bool:
    return (since is None or file.last_us >= since * 1e6) and (until is None or file.first_us < until * 1e6)


def problem_of(path: Path, file: File | None) -> Problem | None:
    """Return the problem of ``path``, described by ``file`` in the manifest; None if it has none."""
    if path.suffix == ".jsonl":
        return Problem("jsonl", "JSON Lines are for a look at single records: ship to Parquet for reports")
    try:
        if file is None:
            return _problem_inside(path, None)
        size, crc32 = _size_and_crc32(path, file.bytes)
        if size < file.bytes:
            return Problem("truncated", f"has {size} of {file.bytes} bytes")
        if (size, crc32) != (file.bytes, file.crc32):
            return Problem("corrupt", "is not what the shipper wrote: its checksum is another")
        return _problem_inside(path, file.rows)
    except FileNotFoundError:
        return Problem("missing", "is in the manifest and not in the directory")
    except Unsuitable as error:
        return Problem("foreign", str(error.strerror))
    except OSError as error:
        return Problem("unreadable", f"cannot be read: {error.strerror or error}")


def _size_and_crc32(path: Path, most: int) -> tuple[int, int]:
    """Of the first ``most`` bytes; the size is more than that if the file is larger."""
    size = crc32 = 0
    with open_regular(path) as file:
        while size <= most and (piece := file.read(_PIECE)):
            size += len(piece)
            crc32 = zlib.crc32(piece, crc32)
    return size, crc32


def _problem_inside(path: Path, rows: int | None) -> Problem | None:
    """Return the problem of the Parquet file ``path``, which must have ``rows`` records; None if it has none."""
    try:
        with open_regular(path) as file, pq.ParquetFile(file) as parquet:
            metadata, columns = parquet.metadata, parquet.schema_arrow
    except (pa.ArrowException, ValueError) as error:
        return Problem("corrupt", f"no Parquet: {str(error).splitlines()[0]}")
    version = (metadata.metadata or {}).get(schema.SCHEMA)
    if version is None:
        return Problem("foreign", "Parquet, but no records of a dispatch log")
    if version != str(schema.VERSION).encode():
        text = f"schema version {version.decode(errors='replace')}; this rpcmq reads {schema.VERSION}"
        return Problem("version", text)
    if rows is not None and metadata.num_rows != rows:
        return Problem("corrupt", f"has {metadata.num_rows} records, not {rows}")
    return _problem_of_columns(columns)


def _problem_of_columns(found: pa.Schema) -> Problem | None:
    for field in ARROW:
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        place = found.get_field_index(field.name)
        if place < 0:
            if field.name in schema.LATE:
                continue
            return Problem("columns", f"column {field.name} is missing")
        if found.field(place).type != kind:
            return Problem("columns", f"column {field.name} is {found.field(place).type}, not {kind}")
    return None


def unreadable(path: Path) -> Problem | None:
    """Return the problem of a file with unreadable pages, which ``problem_of`` passes; None if it has none."""
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as parquet:
            for number in range(parquet.num_row_groups):
                parquet.read_row_group(number)
    except (pa.ArrowException, OSError, ValueError) as error:
        return Problem("corrupt", str(error).splitlines()[0])
    return None


# --- what it does not ---------------------------------------------------------------------------


def _strays(directory: Path) -> list[SetAside]:
    """Return the files in ``ready/`` and ``log/`` that the manifest does not name."""
    # A shipper that is running writes a file first, and names it in the manifest then.
    patiently = Retrying(
        retry=retry_if_result(bool),
        stop=stop_after_delay(_PATIENCE if _is_shipped_now(directory) else 0),
        wait=wait_exponential(0.05, max=0.5),
    )
    try:
        patiently(_unnamed, directory)
        return []
    except RetryError as error:
        unnamed = error.last_attempt.result()
    found = ((path, _problem_of_stray(directory, path)) for path in unnamed)
    return [SetAside(path, *problem, None) for path, problem in found if problem]


def _is_shipped_now(directory: Path) -> bool:
    """Return whether a shipper is at work."""
    try:
        with (directory / manifest.LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _unnamed(directory: Path) -> list[str]:
    paths = [
        path.relative_to(directory).as_posix()
        for place in ("ready", "log")
        for path in sorted((directory / place).rglob("*"))
        if not path.name.startswith(".") and path.is_file()
    ]
    # Read after the directories: files written and named in between are not strays.
    state = manifest.read(directory)
    unnamed = [path for path in paths if not _is_named(state, path)]
    # What the shipper has removed it may have forgotten.
    return [path for path in unnamed if (directory / path).exists()]


def _is_named(state: State, path: str) -> bool:
    return path in state.live or path in state.superseded or path in state.retired


def _problem_of_stray(directory: Path, path: str) -> Problem | None:
    """Return why ``path`` is not read; None if its records are read elsewhere, or it has gone."""
    if not path.endswith(".parquet"):
        return Problem("foreign", "the shipper makes no such file")
    try:
        problem = _problem_inside(directory / path, None)
        if problem is None and path.startswith("log/") and _is_of_named(directory, inputs_of(directory / path)):
            return None
    except FileNotFoundError:
        return None
    except Damaged:
        problem = Problem("foreign", "does not say which segments it was made of")
    except Unsuitable as error:
        return Problem("foreign", str(error.strerror))
    except OSError as error:
        return Problem("unreadable", f"cannot be read: {error.strerror or error}")
    if problem is not None and problem.reason == "corrupt":
        return problem._replace(reason="foreign")
    return problem or Problem("unlisted", "is not in the manifest: the shipper takes it in when it starts again")


def _is_of_named(directory: Path, inputs: Iterable[str]) -> bool:
    """Return whether a compaction that is under way, or was cut off, made it of files whose records are read."""
    state = manifest.read(directory)
    return all(_is_named(state, path) for path in inputs)


# --- what was set aside before ------------------------------------------------------------------


def _quarantined(directory: Path) -> Iterator[SetAside]:
    for path in sorted(directory.glob("[!.]*")):
        explained = path.suffix == ".json"
        if not explained and path.with_name(f"{path.name}.json").exists():
            continue
        reason, text, rows = "quarantined", "set aside before; nothing says why", None
        if explained:
            try:
                why = json.loads(read_regular(path, _PIECE))
                reason, text, rows = str(why["reason"]), str(why["text"]), int(why["rows"])
            except (OSError, ValueError, TypeError, KeyError):
                text = "set aside before; what says why cannot be read"
        yield SetAside(f"quarantine/{path.stem if explained else path.name}", reason, text, rows)
