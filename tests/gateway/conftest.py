"""A gateway in the process of the test, and a service that it calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from time import monotonic
from typing import Any

import gevent
import pytest
from gevent.event import Event

from rpcmq import Client, ExceptionRegistry, current_request
from rpcmq.adapters.rights import parse_right
from rpcmq.gateway import Gateway, load_settings
from rpcmq.gateway.tokens import VERBS, Token, edited_tokens, hash_of, new_secret
from rpcmq.testing import InProcessRouter

Start = Callable[..., Gateway]


class Demo:
    """The service behind the gateway."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.begun: list[str] = []
        self.cancelled: list[str] = []
        self.made = 0
        self.go_on = Event()

    def echo(self, ctx: Any, **args: Any) -> Any:
        self.ran.append("echo")
        return {"ctx": ctx, "args": args}

    def types(self, ctx: Any) -> dict[str, Any]:
        moment = datetime(2026, 11, 28, 17, 30, 0, 123456, UTC)
        return {"decimal": Decimal("12.50"), "datetime": moment, "bytes": b"\0\xff", "set": {1, 2}, "int": 2**70}

    def fail(self, ctx: Any) -> None:
        raise ValueError("no such disk", 7)

    def wait(self, ctx: Any, seconds: float = 30.0, name: str = "wait") -> str:
        end = monotonic() + seconds
        request: Any = current_request()
        self.begun.append(name)
        while monotonic() < end:
            if request.cancelled:
                self.cancelled.append(name)
                return "cancelled"
            gevent.sleep(0.02)
        return "done"

    def hold(self, ctx: Any) -> str:
        assert self.go_on.wait(60)
        return "done"

    def report(self, ctx: Any) -> str:
        request: Any = current_request()
        request.progress({"done": 50})
        return "done"

    def count(self, ctx: Any, n: int, size: int = 0) -> Iterator[Any]:
        for number in range(n):
            self.made = number + 1
            yield number if not size else "x" * size
        self.ran.append("count")

    def large(self, ctx: Any, size: int, pad: str = "") -> str:
        return "x" * size


@pytest.fixture
def demo(serve: Callable[..., Any]) -> Demo:
    """A service on the topic ``demo``."""
    made = Demo()
    serve(made, "demo", "node-1")
    return made


class Secrets:
    """A file of tokens."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def add(self, name: str, *rights: str, **fields: Any) -> str:
        """Add a token; return its secret."""
        secret = new_secret()
        parsed = tuple(parse_right(right, VERBS, VERBS) for right in rights)
        with edited_tokens(self.path) as tokens:
            tokens.append(Token(name, hash_of(secret), parsed, **fields))
        return secret

    def change(self, name: str, *rights: str, **fields: Any) -> None:
        """Give a token other rights and fields; its secret stays."""
        parsed = tuple(parse_right(right, VERBS, VERBS) for right in rights)
        with edited_tokens(self.path) as tokens:
            tokens[:] = [replace(token, rights=parsed, **fields) if token.name == name else token for token in tokens]

    def remove(self, name: str) -> None:
        """Revoke a token."""
        with edited_tokens(self.path) as tokens:
            tokens[:] = [token for token in tokens if token.name != name]


@pytest.fixture
def secrets(tmp_path: Path) -> Secrets:
    """A file of tokens with one that nobody knows."""
    made = Secrets(tmp_path / "tokens.toml")
    made.add("other", "call:other")
    return made


@pytest.fixture
def token(secrets: Secrets) -> str:
    """A token that may do much."""
    return secrets.add(
        "web", "all:demo.#,nobody", "publish,subscribe:disk.#", "subscribe:notifications.#", "call:billing/demo"
    )


@pytest.fixture
def start(router: InProcessRouter, secrets: Secrets) -> Iterator[Start]:
    """Starts gateways at free ports with settings by their keys."""
    made: list[tuple[Gateway, Client]] = []

    def start(**options: Any) -> Gateway:
        given = {key.replace("__", "."): value for key, value in options.items()}
        client = Client(
            router.url, shell="gevent", format="json", exceptions=ExceptionRegistry(defaults=False), timeout=30
        )
        defaults = {"listen.bind": "127.0.0.1:0", "access.tokens": secrets.path}
        gateway = Gateway(client, load_settings(None, defaults | given))
        made.append((gateway, client))
        gateway.start()
        return gateway

    yield start
    for gateway, client in made:
        gateway.stop(0.0)
        client.close()


def address_of(gateway: Gateway) -> tuple[str, int]:
    """Host and port of a gateway."""
    host, _, port = gateway.url.rpartition("/")[2].rpartition(":")
    return host, int(port)
