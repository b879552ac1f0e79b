"""The Spark session: what it is set to, and that nothing of it is left, however it ends."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from gevent.subprocess import PIPE, Popen
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from rpcmq.errors import NotInstalled
from rpcmq.latency.jobs.java import Java
from rpcmq.latency.jobs.jvm import Jvm, SparkFailed
from rpcmq.latency.jobs.memory import engine_memory
from rpcmq.latency.jobs.progress import progress
from rpcmq.latency.jobs.session import session

#: Seconds that a session in a process of its own may take for one step, on a machine that is busy.
PATIENCE = 150

START = """
import os, sys
from rpcmq.latency.jobs.memory import engine_memory
from rpcmq.latency.jobs.session import QUICK, session

def java(spark):
    return spark._jvm.java.lang.ProcessHandle.current().pid()
"""

# --- settings -----------------------------------------------------------------------------------


def test_times_are_utc_and_files_that_are_damaged_or_gone_are_errors(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.files.ignoreCorruptFiles") == "false"
    assert spark.conf.get("spark.sql.files.ignoreMissingFiles") == "false"


def test_a_flipped_bit_is_noticed(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "numbers.parquet"
    table = pa.table({"n": pa.array(range(1000), pa.int64())})
    pq.write_table(table, path, compression="none", use_dictionary=False, write_page_checksum=True)
    numbers = spark.read.schema("n bigint").parquet(str(path))
    assert numbers.select(F.sum("n")).collect()[0][0] == 499_500

    content = bytearray(path.read_bytes())
    content[content.index((500).to_bytes(8, "little"))] ^= 1
    path.write_bytes(content)

    # Without checksums the sum would be 499,501, or 499,499.
    with pytest.raises(Exception, match="could not verify page integrity, CRC checksum verification failed"):
        numbers.select(F.sum("n")).collect()


def test_it_talks_to_no_other_machine(spark: SparkSession) -> None:
    assert spark.conf.get("spark.driver.host") == "127.0.0.1"
    assert spark.conf.get("spark.driver.bindAddress") == "127.0.0.1"


def test_within_a_session_it_is_that_one_and_goes_on(spark: SparkSession) -> None:
    with session("another") as inner:
        assert inner.sparkContext is spark.sparkContext
        assert inner.range(3).count() == 3
    assert spark.range(4).count() == 4


@pytest.mark.parametrize(("gibibytes", "expected"), [(1, 1024), (4, 1024), (10, 2560), (16, 4096), (512, 4096)])
def test_memory_is_a_quarter_within_bounds(monkeypatch: pytest.MonkeyPatch, gibibytes: int, expected: int) -> None:
    monkeypatch.setattr(os, "sysconf", {"SC_PHYS_PAGES": gibibytes << 18, "SC_PAGE_SIZE": 1 << 12}.__getitem__)
    monkeypatch.setattr(Path, "read_text", lambda self: "max\n")
    assert engine_memory() == expected


def test_memory_is_that_of_the_container(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sysconf", {"SC_PHYS_PAGES": 64 << 18, "SC_PAGE_SIZE": 1 << 12}.__getitem__)
    monkeypatch.setattr(Path, "read_text", lambda self: f"{8 << 30}\n")
    assert engine_memory() == 2048


# --- progress -----------------------------------------------------------------------------------


def test_progress_counts_tasks_and_never_falls(spark: SparkSession) -> None:
    seen: list[tuple[int, int]] = []
    with progress(spark, lambda done, known: seen.append((done, known)), seconds=0.01):
        spark.range(0, 4_000_000, numPartitions=8).groupBy(F.col("id") % 7).agg(F.sum(F.sqrt("id"))).collect()

    assert seen == sorted(seen)
    assert [known for _, known in seen] == sorted(known for _, known in seen)
    assert seen[-1][1] >= 8
    assert all(0 <= done <= known for done, known in seen)


# --- without ------------------------------------------------------------------------------------


def test_without_pyspark_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(NotInstalled, match=r"^pyspark is not installed; pip install 'rpcmq\[latency\]'$"):
        session("nothing").__enter__()


def test_java_that_does_not_start_is_quoted(tmp_path: Path) -> None:
    home = tmp_path / "it's java"
    (home / "bin").mkdir(parents=True)
    java = home / "bin" / "java"
    java.write_text("#!/bin/sh\necho 'Could not reserve enough space for the heap' >&2\nexit 1\n")
    java.chmod(0o755)
    (tmp_path / "files").mkdir()
    before = dict(os.environ)

    with pytest.raises(SparkFailed) as caught:
        Jvm(Java(home, 21, "PATH"), tmp_path / "files", {"spark.master": "local[1]"}, alone=True, stop=Event())

    assert "Spark did not start on Java 21" in str(caught.value)
    assert "Could not reserve enough space for the heap" in str(caught.value)
    assert dict(os.environ) == before


# --- ends ---------------------------------------------------------------------------------------


class Run:
    """A script in a process of its own, of which nothing may be left: neither files nor Java."""

    def __init__(self, directory: Path, script: str) -> None:
        self._files = directory / "files"
        self._here = directory / "here"
        for path in (self._files, self._here):
            path.mkdir()
        environ = {**os.environ, "TMPDIR": str(self._files), "PYTHONPATH": os.getcwd()}
        self.process = Popen(
            [sys.executable, "-W", "error", "-X", "dev", "-c", START + script],
            stdout=PIPE,
            stderr=PIPE,
            cwd=self._here,
            env=environ,
        )
        self._javas: list[int] = []

    def line(self) -> str:
        """The next that it prints."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode().strip()

    def java(self) -> int:
        """The next that it prints is its Java; its process id."""
        pid = int(self.line())
        self._javas.append(os.pidfd_open(pid))
        return pid

    def end(self) -> tuple[int, str, str]:
        """Exit code, and what else it printed."""
        output, errors = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, output.decode(), errors.decode()

    def java_ends(self) -> bool:
        """Return whether all of its Javas end."""
        return all(select.select([java], [], [], PATIENCE)[0] for java in self._javas)

    def left(self) -> list[str]:
        """Names of the files that are left."""
        return sorted(path.name for path in (*self._files.iterdir(), *self._here.iterdir()))

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate(timeout=PATIENCE)
        for java in self._javas:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(java, signal.SIGKILL)
            os.close(java)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[[str], Run]]:
    started: list[Run] = []

    def start(script: str) -> Run:
        started.append(Run(tmp_path, script))
        return started[-1]

    yield start
    for each in started:
        each.close()


@pytest.mark.timeout(3 * PATIENCE)
@pytest.mark.long
def test_a_session_that_ends_or_breaks_leaves_nothing_and_another_can_begin(run: Callable[[str], Run]) -> None:
    child = run("""
import signal
from rpcmq.latency.jobs.jvm import SparkFailed

try:
    with session("one", "local[1]", **QUICK) as spark:
        print(java(spark), flush=True)
        spark.range(5).write.parquet(os.environ["TMPDIR"] + "/out")
        assert spark.read.parquet(os.environ["TMPDIR"] + "/out").count() == 5
        spark.sql("select nonsense")
except SparkFailed as error:
    print(error, flush=True)
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
try:
    with session("two", "local[1]", **QUICK) as spark:
        print(java(spark), flush=True)
        os.kill(java(spark), signal.SIGKILL)
        spark.range(5).count()
except SparkFailed as error:
    print(error, flush=True)
""")
    child.java()
    assert child.line().startswith("[UNRESOLVED_COLUMN.WITHOUT_SUGGESTION] A column, variable, or function")
    child.java()

    assert child.end() == (0, "Spark's Java process has ended with exit code -9: it said nothing\n", "")
    assert child.java_ends()
    assert child.left() == ["out"]


@pytest.mark.fault
@pytest.mark.long
@pytest.mark.timeout(3 * PATIENCE)
def test_java_that_ends_while_it_is_stopped_is_an_error_and_leaves_nothing(run: Callable[[str], Run]) -> None:
    child = run("""
import signal
from pyspark.sql import SparkSession
from rpcmq.latency.jobs.jvm import SparkFailed

def stop_too_late(spark):
    os.kill(java(spark), signal.SIGKILL)
    stop(spark)

stop, SparkSession.stop = SparkSession.stop, stop_too_late
try:
    with session("one", "local[1]", **QUICK) as spark:
        print(java(spark), flush=True)
        assert spark.range(5).count() == 5
except SparkFailed as error:
    print(error, flush=True)
""")
    child.java()
    assert child.end() == (0, "Spark's Java process has ended with exit code -9: it said nothing\n", "")
    assert child.java_ends()
    assert child.left() == []


#: Begins a query that takes for ever, and says so when it runs.
ENDLESS = """
from rpcmq.latency.jobs.progress import progress

with session("endless", "local[1]", **QUICK) as spark:
    print(java(spark), flush=True)
    with progress(spark, lambda done, known: print("runs", flush=True)):
        spark.range(10**15).selectExpr("sum(sqrt(id))").collect()
"""


@pytest.mark.fault
@pytest.mark.long
@pytest.mark.timeout(3 * PATIENCE)
@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, 143), pytest.param(signal.SIGINT, -signal.SIGINT, marks=pytest.mark.long)],
)
def test_a_signal_ends_a_query_and_leaves_nothing(run: Callable[[str], Run], number: int, code: int) -> None:
    child = run(ENDLESS)
    child.java()
    assert child.line() == "runs"

    child.process.send_signal(number)

    exit_code, _, errors = child.end()
    assert exit_code == code
    assert ("KeyboardInterrupt" in errors) if number == signal.SIGINT else errors == ""
    assert child.java_ends()
    assert child.left() == []


@pytest.mark.fault
@pytest.mark.long
@pytest.mark.timeout(3 * PATIENCE)
def test_sigterm_ends_a_query_of_a_java_that_hangs(run: Callable[[str], Run]) -> None:
    child = run(ENDLESS)
    java = child.java()
    assert child.line() == "runs"

    os.kill(java, signal.SIGSTOP)
    child.process.terminate()

    assert child.end()[::2] == (143, "")
    assert child.java_ends()
    assert child.left() == []


@pytest.mark.fault
@pytest.mark.long
@pytest.mark.timeout(3 * PATIENCE)
def test_java_that_hangs_is_killed_when_the_session_is_to_end(run: Callable[[str], Run]) -> None:
    child = run("""
import signal
from threading import Event
from rpcmq.latency.jobs import jvm
from rpcmq.latency.jobs.session import session_until

jvm._LONGEST_STOP = 0.5
stop = Event()
try:
    with session_until(stop, "hangs", "local[1]") as spark:
        pid = java(spark)
        print(pid, flush=True)
        os.kill(pid, signal.SIGSTOP)
        stop.set()
        spark.range(5).count()
except jvm.SparkFailed as error:
    print(error, flush=True)
""")
    child.java()
    assert child.end() == (0, "Spark's Java process did not end in time, and was killed\n", "")
    assert child.java_ends()
    assert child.left() == []


@pytest.mark.fault
@pytest.mark.long
@pytest.mark.timeout(3 * PATIENCE)
def test_java_ends_when_its_owner_is_killed(run: Callable[[str], Run]) -> None:
    child = run(ENDLESS)
    child.java()
    assert child.line() == "runs"

    child.process.kill()

    assert child.end()[0] == -signal.SIGKILL
    assert child.java_ends()


@pytest.mark.fault
@pytest.mark.long
@pytest.mark.timeout(3 * PATIENCE)
def test_sigterm_while_it_starts(run: Callable[[str], Run]) -> None:
    child = run("""
print("starts", flush=True)
with session("starting", "local[1]", **QUICK) as spark:
    print("started", flush=True)
""")
    assert child.line() == "starts"
    child.process.terminate()
    code, _, _ = child.end()
    assert code in (143, -signal.SIGTERM)
