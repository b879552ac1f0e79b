"""The examples in docs/gateway.md do what the page says."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gevent
import pytest
from gevent import subprocess

from rpcmq.gateway import load_settings
from rpcmq.gateway.tokens import read_tokens
from tests.gateway.browsers import browser
from tests.gateway.conftest import Secrets, Start, address_of
from tests.gateway.programs import CLIENT, NODE, needs_node

pytestmark = pytest.mark.integration

PAGE = (Path(__file__).parents[2] / "docs" / "gateway.md").read_text()


class Disk:
    def free(self, ctx: Any, path: str) -> int:
        if path == "/nowhere":
            raise FileNotFoundError("no such folder")
        return 42

    def names(self, ctx: Any, path: str) -> Iterator[str]:
        yield from ("etc", "home")

    def scrub(self, ctx: Any) -> None:
        pass

    def check(self, ctx: Any) -> None:
        gevent.sleep(30)


@pytest.fixture
def token(secrets: Secrets, serve: Callable[..., Any]) -> str:
    serve(Disk(), "disk", "node-1")
    return secrets.add("web", "all:disk.#")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_conversation_is_as_it_stands_there(start: Start, token: str) -> None:
    (text,) = re.findall(r"<!-- conversation -->\n```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    with browser(address_of(start())) as page:
        for line in text.splitlines():
            message = json.loads(line[2:])
            if line.startswith("→"):
                page.send_text(line[2:].replace("TOKEN", token))
            else:
                assert page.next() == message


@needs_node
def test_the_program_prints_what_stands_below(start: Start, token: str, tmp_path: Path) -> None:
    program = blocks("js")[0].replace('"/rpcmq.js"', json.dumps((CLIENT / "rpcmq.js").as_uri()))
    program = program.replace("{ token }", "{ url: process.env.URL, token: process.env.TOKEN }")
    path = tmp_path / "page.mjs"
    path.write_text(program)
    assert NODE is not None
    env = {"URL": start().websocket_url, "TOKEN": token, "PATH": "/usr/bin:/bin"}
    ended = subprocess.run([NODE, str(path)], env=env, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.stdout, ended.stderr) == (blocks("text")[0], "")


def test_the_files_are_read(tmp_path: Path) -> None:
    tokens, config = blocks("toml")
    path = tmp_path / "tokens.toml"
    path.write_text(tokens)
    assert [token.name for token in read_tokens(str(path))] == ["web"]
    path = tmp_path / "gateway.toml"
    path.write_text(config)
    assert load_settings(str(path)).limits.messages_per_second == tomllib.loads(config)["limits"]["messages_per_second"]


def test_the_page_has_each_message_and_each_close_code() -> None:
    from rpcmq.gateway import effects, messages

    table = PAGE[PAGE.index("| sent by the client |") :]
    assert all(f"`{op}`" in table for op in messages.OPERATIONS)
    codes = {value for value in vars(effects).values() if isinstance(value, int)}
    assert all(f"| {code} |" in table for code in codes)
