"""A private PostgreSQL server from the system's package, on a free port: ``python -m tests.store.postgres_server``.

It needs Debian's package ``postgresql`` (``apt-get install postgresql``); nothing of it needs to be set up or to run.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Self

import psycopg
from gevent import sleep, subprocess

__all__ = ["PostgresServer", "binaries"]

_FOLDERS = "/usr/lib/postgresql"
_PATIENCE = 60.0


def binaries() -> Path | None:
    """The folder with the server's programs, of the newest version; None: it is not installed."""
    found = [path.parent for path in Path(_FOLDERS).glob("*/bin/initdb")]
    on_path = shutil.which("initdb")
    return max(found, key=lambda path: int(path.parent.name)) if found else Path(on_path).parent if on_path else None


class PostgresServer:
    """A server with a cluster of its own in a new directory, which is gone when it has stopped.

    Args:
        is_synced: a commit waits for the disk.
        within: the directory in which that is made; None: the system's for temporary ones.
        initial: more arguments of ``initdb``.

    Attributes:
        url: of its database.
    """

    def __init__(self, is_synced: bool = True, within: Path | None = None, initial: Sequence[str] = ()) -> None:
        self._is_synced = is_synced
        programs = binaries()
        assert programs is not None, "PostgreSQL is not installed: apt-get install postgresql"
        self._programs = programs
        self._directory = Path(tempfile.mkdtemp(prefix="rpcmq-postgres-", dir=within))
        # It refuses to run as root.
        self._user = "postgres" if os.geteuid() == 0 else None
        if self._user:
            shutil.chown(self._directory, self._user)
        self._process: subprocess.Popen[bytes] | None = None
        self._port = _free_port()
        self.url = f"postgresql://rpcmq@127.0.0.1:{self._port}/postgres"
        try:
            self._run(
                "initdb", "-D", str(self._directory / "data"), "-U", "rpcmq", "-A", "trust", "--no-sync", *initial
            )
            self.start()
        except BaseException:
            self.stop()
            raise

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._programs / program), *arguments]
        run = subprocess.run(command, user=self._user, cwd="/", capture_output=True, text=True, timeout=_PATIENCE)
        assert run.returncode == 0, run.stderr

    def start(self) -> None:
        """Start it, and wait until it answers."""
        settings = ["listen_addresses=127.0.0.1", f"unix_socket_directories={self._directory}"]
        if not self._is_synced:
            settings.append("fsync=off")
        command = [str(self._programs / "postgres"), "-D", str(self._directory / "data"), "-p", str(self._port)]
        command += [each for setting in settings for each in ("-c", setting)]
        with open(self._directory / "log", "ab") as log:
            self._process = subprocess.Popen(command, user=self._user, cwd="/", stdout=log, stderr=log)
        deadline = monotonic() + _PATIENCE
        while True:
            try:
                psycopg.connect(self.url, connect_timeout=5).close()
                return
            except psycopg.OperationalError:
                assert monotonic() < deadline, (self._directory / "log").read_text()
                sleep(0.05)

    def start_again(self) -> None:
        """Start it if it does not run, and let it go on if it is frozen."""
        if self._process is None or self._process.poll() is not None:
            self.start()
        else:
            self.thaw()

    def freeze(self) -> None:
        """Stop it with all its sessions: connections stay, and nothing is answered."""
        self._tell_all(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._tell_all(signal.SIGCONT)

    def _tell_all(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)
        for child in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split():
            try:
                os.kill(int(child), number)
            except ProcessLookupError:
                pass  # a session that has just ended

    @property
    def pid(self) -> int:
        """The process whose children serve the sessions."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """End it at once, without writing anything more."""
        assert self._process is not None
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait(_PATIENCE)

    def stop(self) -> None:
        """End it, and remove everything."""
        if self._process is not None and self._process.poll() is None:
            self.kill()
        shutil.rmtree(self._directory, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


if __name__ == "__main__":
    if binaries() is None:
        sys.exit("PostgreSQL is not installed: apt-get install postgresql")
    for number in (signal.SIGINT, signal.SIGTERM):  # also where a shell has started it in the background
        signal.signal(number, lambda *_: sys.exit(0))
    with PostgresServer() as server:
        print(server.url, flush=True)
        signal.pause()
