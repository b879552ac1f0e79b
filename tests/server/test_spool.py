"""Writing the dispatch log: whole files, every fault of a disk, and what a kill leaves."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, time
from typing import Any

import gevent
import pytest
from gevent import subprocess
from gevent.event import Event
from gevent.monkey import get_original

from rpcmq.client.client import Client
from rpcmq.client.service import Service
from rpcmq.core.router.dispatch_log import CHUNK_RECORDS, Chunk
from rpcmq.errors import ConfigError
from rpcmq.log_format import MARK, PART, RECORD, SEALED, NameKind, Problem, SpoolError, name_entry, read_spool
from rpcmq.server import spool as spool_module
from rpcmq.server.spool import MAX_WAITING, Spool
from rpcmq.testing import eventually
from rpcmq.testing import router as router_here
from rpcmq.wire import Kind, pack
from tests.server.daemons import environment, router

BOOT = 1_700_000_000_000
NAMES = name_entry(1, NameKind.TARGET, "", "compute", "", "", "reboot")
REQUEST = pack(Kind.REQUEST)


class Chunks:
    """Makes chunks as the engine does."""

    def __init__(self) -> None:
        self.segment = 1
        self.seq = 0
        self._is_new = True

    def next(self, records: int = 10, is_last: bool = False, is_final: bool = False) -> Chunk:
        numbers = range(self.seq + 1, self.seq + records + 1)
        self.seq += records
        packed = b"".join(
            RECORD.pack(REQUEST, n, 1.0, 1.0, 2.0, 1, 0, 0, 40, 0, 0xFFFFFFFF, 0, 0, 0, b"", 0) for n in numbers
        )
        is_new, self._is_new = self._is_new, is_last
        names = (1, NAMES) if is_new else (0, b"")
        chunk = Chunk(self.segment, MARK.pack(2.0, self.seq, 0), *names, b"", packed, is_last, is_final)
        if is_last:
            self.segment += 1
        return chunk

    def refused(self) -> None:
        """Act as the engine does after a refusal."""
        self.segment += 1
        self._is_new = True


class Disk:
    """A spool in a directory, the chunks for it, and what is found there."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.chunks = Chunks()
        self.spool = Spool(str(directory), 7, "r1", BOOT)

    def write(self, records: int = 10, **options: bool) -> bool:
        """As the engine writes, and waits until that is done."""
        taken = self.spool.write(self.chunks.next(records, **options))
        if not taken:
            self.chunks.refused()
        self.settle()
        return taken

    def settle(self) -> None:
        """Wait for the thread: everything given was written or dropped."""

        def is_done() -> bool:
            state = self.spool.statistics()
            return bool(state["records"] + state["dropped"] == self.chunks.seq and not state["waiting"])

        eventually(is_done)

    def close(self) -> None:
        self.spool.close(5)

    def names(self) -> list[str]:
        return sorted(os.listdir(self.directory / "spool"))

    def seqs(self) -> list[int]:
        """Of the records in all files, as far as these can be read."""
        return [seq for path in sorted((self.directory / "spool").iterdir()) for seq in seqs_of(path)]


def seqs_of(path: Path) -> list[int]:
    found: list[int] = []
    try:
        found.extend(record.seq for record in read_spool(path))
    except SpoolError as error:
        assert error.problem is Problem.TRUNCATED
    return found


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    monkeypatch.setattr(spool_module, "_RETRY", 0.0)
    monkeypatch.setattr(spool_module, "_LOOK", 0.0)
    made = Disk(tmp_path)
    yield made
    made.close()


def is_locked(path: Path) -> bool:
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


# --- files --------------------------------------------------------------------------------------


def test_a_file_is_locked_while_it_is_written_and_sealed_when_it_is_done(disk: Disk):
    before = time()
    assert disk.names() == []
    disk.write()
    name = f"7-{BOOT}-00000001"
    assert disk.names() == [name + PART] and is_locked(disk.directory / "spool" / (name + PART))
    disk.write(is_last=True)
    eventually(lambda: disk.names() == [name + SEALED])
    disk.write(5, is_last=True, is_final=True)
    disk.close()
    first, second = (read_spool(disk.directory / "spool" / each) for each in disk.names())
    assert [r.seq for r in first] == list(range(1, 21)) and [r.seq for r in second] == list(range(21, 26))
    assert first.seal is not None and first.seal[:4] == (20, 0, 1, 0) and not first.seal.final
    assert second.seal is not None and second.seal.final
    assert (second.head.router_id, second.head.router_name, second.head.segment) == (7, "r1", 2)
    assert before - 1 <= first.head.wall(monotonic()) / 1e6 <= time() + 1
    assert disk.spool.statistics() == {
        "directory": str(disk.directory / "spool"), "files": 2, "records": 25, "dropped": 0, "waiting": 0,
        "problem": "",
    }  # fmt: skip


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_its_files_have_one_mode_whatever_the_umask_is(disk: Disk, umask: int):
    before = os.umask(umask)
    try:
        disk.write(is_last=True)
        disk.write()
    finally:
        os.umask(before)
    modes = [oct((disk.directory / "spool" / name).stat().st_mode & 0o7777) for name in disk.names()]
    assert modes == ["0o640", "0o640"]


def test_what_was_not_ended_is_sealed_at_the_end(disk: Disk):
    disk.write()
    disk.close()
    (name,) = disk.names()
    spool = read_spool(disk.directory / "spool" / name)
    assert len(list(spool)) == 10 and spool.seal is not None and not spool.seal.final


def test_an_unfinished_segment_makes_way_for_the_next(disk: Disk):
    disk.write()
    disk.chunks.refused()
    disk.write()
    assert [name.rpartition(".")[2] for name in disk.names()] == ["spool", "part"]
    assert disk.seqs() == list(range(1, 21))


@pytest.mark.parametrize("path", ["file", "file/below"])
def test_a_directory_that_cannot_be_is_refused_at_start(tmp_path: Path, path: str):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"dispatch_log\.directory = .*: cannot write there"):
        Spool(str(tmp_path / path), 7, "r1", BOOT)


def test_a_directory_without_permission_is_refused_at_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(ConfigError, match="Permission denied"):
        Spool(str(tmp_path), 7, "r1", BOOT)


def test_a_full_disk_at_start_is_no_reason_not_to_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "makedirs", failing(errno.ENOSPC))
    spool = Spool(str(tmp_path), 7, "r1", BOOT)
    assert spool.write(Chunks().next())
    eventually(lambda: spool.dropped == 10)
    spool.close(5)


# --- faults -------------------------------------------------------------------------------------


def failing(number: int) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize("call", ["open", "writev", "makedirs", "fstat"])
@pytest.mark.parametrize("when", [0, 1])
def test_an_error_drops_counts_and_passes(disk: Disk, monkeypatch: pytest.MonkeyPatch, call: str, when: int):
    for _ in range(when):
        disk.write()
    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing(errno.EIO))
        for _ in range(3):
            disk.write()
    state = disk.spool.statistics()
    assert state["records"] + state["dropped"] == disk.chunks.seq
    if call == "writev" or (call != "fstat" and not when):
        assert "Input/output error" in state["problem"] and state["dropped"] > 0
    if call == "fstat":
        assert "gone" in state["problem"] and state["records"] == 0
    for _ in range(3):
        disk.write()
    assert disk.spool.problem == ""
    disk.write(is_last=True, is_final=True)
    disk.close()
    assert len(disk.seqs()) == len(set(disk.seqs()))
    if call != "fstat":
        assert len(disk.seqs()) == disk.spool.statistics()["records"]
    assert disk.seqs()[-20:] == list(range(disk.chunks.seq - 19, disk.chunks.seq + 1))
    last = read_spool(disk.directory / "spool" / disk.names()[-1])
    list(last)
    assert last.seal is not None and last.seal.dropped == disk.spool.dropped


def test_an_error_between_two_files_leaves_both_whole(disk: Disk, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", failing(errno.EROFS))
        disk.write()
    assert disk.names() == []
    # The engine learns of it with the next chunk, which has no names any more.
    assert not disk.write() and disk.write()
    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", failing(errno.EROFS))
        disk.write(is_last=True)
    eventually(lambda: disk.spool.problem != "")
    # It could not be renamed, but what is in it counts.
    (name,) = disk.names()
    assert name.endswith(PART) and not is_locked(disk.directory / "spool" / name)
    assert disk.seqs() == list(range(21, 41)) and disk.spool.dropped == 20


def test_a_short_write_is_gone_on_with(disk: Disk, monkeypatch: pytest.MonkeyPatch):
    writev = os.writev
    monkeypatch.setattr(os, "writev", lambda fd, pieces: writev(fd, [b"".join(pieces)[:7]]))
    disk.write()
    disk.write(is_last=True)
    disk.close()
    assert disk.seqs() == list(range(1, 21))


def test_half_a_chunk_is_taken_back(disk: Disk, monkeypatch: pytest.MonkeyPatch):
    disk.write()
    writev = os.writev
    with monkeypatch.context() as patch:
        patch.setattr(os, "writev", lambda fd, pieces: writev(fd, [b"".join(pieces)[:200]]))
        patch.setattr(os, "write", failing(errno.ENOSPC))
        disk.write()
    assert not disk.write() and disk.write()
    disk.close()
    assert disk.seqs() == [*range(1, 11), *range(31, 41)] and disk.spool.dropped == 20


def test_a_removed_directory_is_made_again(disk: Disk):
    disk.write()
    shutil.rmtree(disk.directory / "spool")
    disk.write()
    assert disk.spool.dropped == 20 and "gone" in disk.spool.problem
    assert not disk.write() and disk.write()
    assert disk.seqs() == list(range(31, 41)) and disk.spool.problem == ""


def test_what_was_written_before_one_looks_is_lost_too_and_counted(disk: Disk, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(spool_module, "_LOOK", 1000.0)
    disk.write()
    shutil.rmtree(disk.directory / "spool")
    disk.write()
    assert disk.spool.dropped == 0
    disk.write(is_last=True)
    assert disk.spool.dropped == 30 and disk.spool.statistics()["records"] == 0
    assert disk.write()
    assert disk.seqs() == list(range(31, 41))


def test_a_file_that_was_removed_before_its_seal_is_counted_as_lost(disk: Disk, monkeypatch: pytest.MonkeyPatch):
    disk.write()
    monkeypatch.setattr(os, "rename", lambda *_: shutil.rmtree(disk.directory / "spool"))
    disk.chunks.refused()
    disk.spool.write(disk.chunks.next(0))
    eventually(lambda: disk.spool.dropped == 10)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 512 KiB."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(place)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a file system is not allowed here")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_a_full_disk_and_room_again(small_disk: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(spool_module, "_RETRY", 0.0)
    disk = Disk(small_disk)
    for _ in range(10):
        disk.write(CHUNK_RECORDS)
    state = disk.spool.statistics()
    assert "No space left" in state["problem"]
    assert state["records"] == 4 * CHUNK_RECORDS and state["dropped"] == 6 * CHUNK_RECORDS
    # The shipper takes what is there.
    for name in disk.names():
        assert seqs_of(small_disk / "spool" / name) in ([], list(range(1, 4 * CHUNK_RECORDS + 1)))
        os.unlink(small_disk / "spool" / name)
    disk.write(CHUNK_RECORDS)
    disk.write(CHUNK_RECORDS, is_last=True, is_final=True)
    disk.close()
    assert disk.spool.problem == ""
    assert len(disk.seqs()) == 2 * CHUNK_RECORDS
    (spool,) = [read_spool(small_disk / "spool" / name) for name in disk.names()]
    assert spool.head.dropped == 6 * CHUNK_RECORDS


def test_a_disk_that_does_not_answer_delays_nobody(disk: Disk, monkeypatch: pytest.MonkeyPatch):
    stuck = get_original("_thread", "allocate_lock")()
    stuck.acquire()
    writev = os.writev

    def wait(fd: int, pieces: list[bytes]) -> int:
        with stuck:
            return writev(fd, pieces)

    monkeypatch.setattr(os, "writev", wait)
    began = monotonic()
    taken = []
    for _ in range(MAX_WAITING + 10):
        taken.append(disk.spool.write(disk.chunks.next()))
        if not taken[-1]:
            disk.chunks.refused()
    assert monotonic() - began < 10
    assert MAX_WAITING <= sum(taken) <= MAX_WAITING + 1 and "does not answer" in disk.spool.problem
    stuck.release()
    disk.settle()
    disk.write()
    assert disk.spool.problem == ""
    assert len(disk.seqs()) == disk.chunks.seq - disk.spool.dropped > 0


def test_after_a_failure_the_disk_is_left_alone_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    disk = Disk(tmp_path)
    tried: list[int] = []

    def fail(fd: int, _: list[bytes]) -> int:
        tried.append(fd)
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "writev", fail)
    for _ in range(20):
        disk.write()
    assert len(tried) == 1 and disk.spool.dropped == 200
    disk.close()


def test_a_warning_a_minute_and_a_line_when_it_is_over(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO, "rpcmq.router")
    disk.spool.report(1000.0)
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", failing(errno.ENOSPC))
        for second in range(130):
            disk.write()
            disk.spool.report(1000.0 + second)
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == 3 and "No space left on device" in warnings[0] and "10 records" in warnings[0]
    disk.write()
    for second in range(130, 140):
        disk.spool.report(1000.0 + second)
    assert [r.levelname for r in caplog.records] == ["WARNING"] * 3 + ["INFO"]
    assert "written again; 1300 records were dropped" in caplog.records[-1].getMessage()


def test_a_fork_leaves_the_parents_thread_alone(disk: Disk):
    disk.write()
    child = os.fork()
    if not child:
        began = monotonic()
        disk.spool.close(60)
        os._exit(0 if monotonic() - began < 30 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert disk.write()


# --- kill -9 ------------------------------------------------------------------------------------

#: Writes chunks, and is killed at the system call of that number, before it or after half of its bytes.
_VICTIM = """
import os, sys
from pathlib import Path
from tests.server.test_spool import Disk

at, half = int(sys.argv[2]), bool(int(sys.argv[3]))
calls = 0

def dangerous(name):
    call = getattr(os, name)
    def instead(*arguments, **options):
        global calls
        if "spool" not in str(arguments[0]) and name != "writev":
            return call(*arguments, **options)
        calls += 1
        if calls == at:
            if half and name == "writev":
                data = b"".join(arguments[1])
                os.write(arguments[0], data[: len(data) // 2])
            os.kill(os.getpid(), 9)
        return call(*arguments, **options)
    setattr(os, name, instead)

disk = Disk(Path(sys.argv[1]))
for name in ("open", "writev", "rename"):
    dangerous(name)
for number in range(6):
    disk.write(100, is_last=number % 3 == 2)
    print(disk.chunks.seq, flush=True)
disk.close()
print("calls", calls, flush=True)
"""


def victim(directory: Path, at: int, half: bool) -> list[str]:
    """The victim's output before it was killed."""
    root = Path(__file__).parents[2]
    ended = subprocess.run(
        [sys.executable, "-c", _VICTIM, str(directory), str(at), str(int(half))],
        capture_output=True, text=True, check=False, cwd=root, env=environment(PYTHONPATH=str(root)), timeout=60,
    )  # fmt: skip
    assert ended.returncode in (0, -signal.SIGKILL), ended.stderr
    said: list[str] = ended.stdout.split("\n")[:-1]
    return said


@pytest.mark.parametrize(("at", "half"), [*((at, False) for at in range(1, 18)), *((at, True) for at in (2, 4, 6, 7))])
def test_a_kill_at_each_stage_loses_the_last_chunk_at_most(tmp_path: Path, at: int, half: bool):
    said = victim(tmp_path, at, half)
    assert ("calls 16" in said) == (at > 16)
    safe = max([0, *(int(line) for line in said if line.isdigit())])
    found: list[int] = []
    for path in sorted((tmp_path / "spool").iterdir()):
        if not path.name.startswith("."):
            assert not is_locked(path)
            found += seqs_of(path)
            spool = read_spool(path)
            assert path.name.endswith(SEALED if is_signed(spool) and at % 8 else PART) or at == 16
    assert found == list(range(1, len(found) + 1))
    assert safe <= len(found) <= safe + 100


def is_signed(spool: Any) -> bool:
    try:
        list(spool)
    except SpoolError:
        return False
    return spool.seal is not None


# --- in a router --------------------------------------------------------------------------------


AWAKE = Event()


class Endpoint:
    def add(self, context: object, a: int = 1, b: int = 2) -> int:
        """Add."""
        return a + b

    def sleep(self, context: object) -> None:
        """Take long."""
        AWAKE.wait(60)


@contextmanager
def ends(url: str) -> Iterator[Client]:
    with Service("calculator", Endpoint(), router=url), Client(router=url) as client:
        yield client


def call(client: Client, method: str = "add") -> Any:
    return client.call(None, "calculator", {"method": method, "args": {}}, timeout=10)


def entries(directory: Path) -> list[Any]:
    found: list[Any] = []
    for path in sorted((directory / "spool").iterdir()):
        try:
            found.extend(read_spool(path))
        except SpoolError as error:
            assert error.problem is Problem.TRUNCATED and path.name.endswith(PART)
    return found


def test_a_router_in_this_process_logs(tmp_path: Path):
    with router_here(dispatch_log_directory=str(tmp_path)) as here, ends(here.url) as client:
        for _ in range(20):
            call(client)
        assert here.query("summary")["dispatch_log"]["directory"] == str(tmp_path / "spool")
    found = entries(tmp_path)
    assert [r.outcome for r in found] == [0] * 20 and {r.method for r in found} == {"add"}
    assert all(r.total_us >= r.service_us >= r.handler_us >= 0 for r in found)


def test_a_drain_writes_everything_and_seals(tmp_path: Path):
    with router("--dispatch-log", str(tmp_path)) as daemon, ends(daemon.url) as client:
        for _ in range(50):
            call(client)
        daemon.signal(signal.SIGTERM)
        assert daemon.exit_code() == 0
    (path,) = (tmp_path / "spool").iterdir()
    spool = read_spool(path)
    assert [r.seq for r in spool] == list(range(1, 51))
    assert spool.seal is not None and spool.seal.final and path.name.endswith(SEALED)


def has_a_call_in_flight(spool: Path) -> bool:
    """Whether a call that takes long is on the disk."""
    try:
        return any(record.outcome is None for path in spool.iterdir() for record in read_spool(path))
    except SpoolError:
        return False  # of a file that was just begun


def test_after_a_kill_the_accounting_says_what_is_lost(tmp_path: Path):
    with router("--dispatch-log", str(tmp_path)) as daemon, ends(daemon.url) as client:
        slow = gevent.spawn(call, client, "sleep")
        done = 0
        until = monotonic() + 60
        while not has_a_call_in_flight(tmp_path / "spool"):
            assert monotonic() < until, "the call that takes long was not recorded"
            for _ in range(20):
                call(client)
            done += 20
        daemon.signal(signal.SIGKILL)
        daemon.exit_code()
        AWAKE.set()
        slow.kill()
    (path,) = (tmp_path / "spool").iterdir()
    assert path.name.endswith(PART) and not is_locked(path)
    spool = read_spool(path)
    found = list(spool)
    ended = {r.seq for r in found if r.outcome is not None}
    (hanging,) = [r for r in found if r.outcome is None]
    assert (hanging.method, hanging.seq) not in {(r.method, r.seq) for r in found if r.outcome is not None}
    assert hanging.method == "sleep"
    # All but the last second, or the last buffer.
    assert spool.mark is not None and spool.mark.last_seq >= len(ended) >= done / 3
    holes = set(range(1, spool.mark.last_seq + 1)) - ended
    assert hanging.seq in holes and len(holes) == spool.mark.in_flight
