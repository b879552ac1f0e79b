"""A kill loses the last chunk of the dispatch log at most, and a router says what is lost."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import gevent
import pytest
from gevent import subprocess
from gevent.event import Event

from rpcmq.client.client import Client
from rpcmq.client.service import Service
from rpcmq.log_format import PART, SEALED, Problem, SpoolError, read_spool
from rpcmq.testing import router as router_here
from tests.server.daemons import environment, router
from tests.server.spooled import is_locked, seqs_of

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
    """Return whether a call that takes long is on the disk."""
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
