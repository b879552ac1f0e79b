"""Routers of a mesh with keys, each with a queue server, as real processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rpcmq import Client
from rpcmq.core.router.rights import EVERYTHING, Key, Right
from rpcmq.server.mesh_secret import MESH_SECRET, make_mesh_secret
from rpcmq.transport.key_files import write_private
from tests.keys import Folder, right
from tests.server.daemons import SECONDS, Daemon, eventually, router

__all__ = ["KeyedMesh", "gone"]

_MESH = right("mesh", "#", exchanges=("*",))
_QUICK = ("--link-resume-seconds", "1", "--mesh-silence-seconds", "1", "--mesh-lost-seconds", "2")


class KeyedMesh:
    """The routers ``a`` and ``b``, of which each has authorised each, and which share a secret.

    Args:
        stack: ends all at its end.
        flags: of the routers.
        queue_dir: whether each has a directory for its queue server.
    """

    def __init__(self, stack: ExitStack, path: Path, *flags: str, queue_dir: bool = True) -> None:
        self._stack, self._path, self._flags = stack, path, (*_QUICK, *flags)
        self._queue_dir = queue_dir
        self.urls = {name: f"tcp://127.0.0.1:{_free_port()}" for name in "ab"}
        self.folders: dict[str, Folder] = {}
        for name in "ab":
            (path / name).mkdir()
            self.folders[name] = Folder(path / name)
        for name, other in ("ab", "ba"):
            self.folders[name].authorise(Key(other, self.folders[other].router, (_MESH,)))
        secret = self.folders["a"].path / MESH_SECRET
        make_mesh_secret(secret)
        write_private(self.folders["b"].path / MESH_SECRET, secret.read_text())
        self._key_files: dict[str, str] = {}
        self.routers = {name: self.start(name) for name in "ab"}
        eventually(lambda: all(self.is_linked(name) for name in "ab"))

    def start(self, name: str, **env: str) -> Daemon:
        """Start a router, at the endpoint that it always has."""
        other = "b" if name == "a" else "a"
        config = self._path / name / "router.toml"
        config.write_text(
            f'[router]\nname = "{name}"\nlisten = "{self.urls[name]}"\nhttp = "127.0.0.1:0"\n'
            f'[security]\nkeys = "{self.folders[name]}"\n'
            f'[[mesh.peer]]\nurl = "{self.urls[other]}"\nserver_key = {json.dumps(self.folders[other].router)}\n'
        )
        directory = ("--queue-dir", str(self._path / f"queues-{name}")) if self._queue_dir else ()
        flags = ("--config", str(config), "--listen", self.urls[name], *directory, *self._flags)
        return self._stack.enter_context(router(*flags, env=env))

    def key_file(self, name: str, *rights: Right) -> str:
        """The key file of the client ``name``, which both routers have authorised for ``rights``; default: all."""
        if name not in self._key_files:
            self._key_files[name] = self.folders["a"].add(name, *rights)
            public = _public(self._key_files[name])
            self.folders["b"].authorise(Key(name, public, rights or (EVERYTHING,)))
        return self._key_files[name]

    def client(self, name: str, *rights: Right, at: str = "a") -> Client:
        """A client of the router ``at``."""
        path = self.key_file_of_both(name, *rights)
        return self._stack.enter_context(Client(self.urls[at], key_file=path, shell="gevent"))

    def key_file_of_both(self, name: str, *rights: Right) -> str:
        """The key file of the client ``name`` with the key of either router, so that it may begin at any."""
        path = Path(self.key_file(name, *rights))
        keys = "".join(f"{json.dumps(self.urls[each])} = {json.dumps(self.folders[each].router)}\n" for each in "ab")
        if "[routers]" not in (text := path.read_text()):
            path.chmod(0o600)
            path.write_text(f"{text}\n[routers]\n{keys}")
        return str(path)

    def page(self, name: str, path: str) -> Any:
        """A page of a router."""
        with urllib.request.urlopen(self.routers[name].http + path, timeout=SECONDS) as answer:
            return json.loads(answer.read())

    def is_linked(self, name: str) -> bool:
        """Return whether a router hears the other one."""
        return [row["state"] for row in self.page(name, "/mesh")["routers"]] == ["answering"]

    def server(self, name: str) -> int:
        """The pid of the queue server of a router."""
        eventually(lambda: self.page(name, "/queues")["state"] == "serving")
        return int(self.page(name, "/queues")["pid"])

    def kill(self, name: str) -> None:
        """Kill a router alone."""
        self.routers[name].signal(signal.SIGKILL)
        eventually(lambda: self.routers[name].process.poll() is not None)

    def kill_machine(self, name: str) -> None:
        """Kill a router with its queue server."""
        pid = self.server(name)
        self.kill(name)
        os.kill(pid, signal.SIGKILL)


def gone(pid: int) -> bool:
    """Return whether the process ``pid`` has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"
    except FileNotFoundError:
        return True


def _public(path: str) -> str:
    from rpcmq.transport.key_files import read_key_file

    return read_key_file(path, client=True).public


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
