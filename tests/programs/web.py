"""Web applications in real servers, and requests to them."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import gevent

from rpcmq.testing import eventually
from tests.programs.groups import Group

__all__ = ["Server", "Site"]

Answer = tuple[int, Any]


@dataclass(frozen=True)
class Server:
    """A web server with an application.

    Attributes:
        command: arguments of Python that start it on a port that the system picks.
        says: what it says when it listens, with the port.
        output: the lines that it may say.
        says_again: what it says when it has reloaded; with the port, if that is another then.
        workers: processes that serve; each has one connection.
        others: processes beside them that have a connection.
        stops_by: the signal for its end; of SIGINT, each process of its group gets it.
        ends_with: its exit code then.
    """

    command: Sequence[str]
    says: str
    output: Sequence[str]
    says_again: str = ""
    workers: int = 1
    others: int = 0
    stops_by: int = signal.SIGTERM
    ends_with: int = 0


class Site:
    """A server that runs, as its users see it."""

    def __init__(self, server: Server, program: Group) -> None:
        self.server = server
        self.program = program
        self._await_listening(server.says)

    def reload(self, change: Callable[[], object]) -> None:
        """Change its source, wait until it has noticed that, and serves again."""
        for _ in range(10):
            # One that comes before its reloader first looks is not noticed.
            change()
            try:
                self.program.expect("Detected change in|changed, reloading", 5)
                break
            except AssertionError:
                pass  # the next one will be
        self._await_listening(self.server.says_again)

    def _await_listening(self, says: str) -> None:
        found = self.program.expect(says, 40)
        if found.groups():
            self._url = f"http://127.0.0.1:{found[1]}"
        eventually(lambda: self.get("/instances/i-0")[0] == 200, 40, what=self.program.said())

    def get(self, path: str) -> Answer:
        """Status and body of a page."""
        return self.all([path])[0]

    def post(self, path: str) -> Answer:
        """Status and body of the answer."""
        return self.all([path], "POST")[0]

    def all(self, paths: Sequence[str], method: str = "GET") -> list[Answer]:
        """The same of many requests, eight at a time, from threads: the service lives in this thread's hub."""

        def fetch(path: str) -> Answer:
            try:
                with urlopen(Request(self._url + path, method=method), timeout=30) as answer:
                    return answer.status, _decoded(answer.read())
            except HTTPError as error:
                with error:
                    return error.code, _decoded(error.read())
            except OSError as error:
                return 0, str(error)

        def fetch_all() -> list[Answer]:
            with ThreadPoolExecutor(8) as pool:
                return list(pool.map(fetch, paths))

        answers: list[Answer] = _in_thread(fetch_all)
        return answers

    def stop(self) -> None:
        """Stop it as its operator does, and check how it ends."""
        if self.server.stops_by == signal.SIGINT:
            self.program.interrupt()
        else:
            self.program.signal(self.server.stops_by)
        code = self.program.wait(40)
        assert code == self.server.ends_with, self.program.said()
        self.program.assert_said_only(self.server.output)


def _decoded(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return body.decode()  # the page of a server that has failed


def _in_thread(function: Callable[[], Any]) -> Any:
    return gevent.get_hub().threadpool.apply(function)
