"""Each block of TOML in the documents is what the program that reads such a file takes: names, types and values."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from rpcmq.config import load_router_config
from rpcmq.drill.topology import load_topology
from rpcmq.errors import ConfigError
from rpcmq.gateway.settings import load_settings as load_gateway_settings
from rpcmq.gateway.tokens import read_tokens
from rpcmq.payload.trust import read_policy
from rpcmq.proxy.settings import load_settings as load_proxy_settings
from rpcmq.server.authorized_keys import read_authorised
from rpcmq.syslog.settings import load_settings as load_syslog_settings
from rpcmq.toml import read_toml
from tests.docs.pages import DOCS, blocks_of

ROOT = DOCS.parent
PAGES = {str(page.relative_to(ROOT)): page for page in sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])}
BLOCKS = {
    f"{name}:{block.line}": block for name, page in PAGES.items() for block in blocks_of(page) if block.info == "toml"
}
#: The page, or a word that the block has -> what reads it. The first one counts.
READERS: dict[str, Callable[[str], object]] = {
    "[build-system]": read_toml,
    "[routers]": read_toml,  # the end of a key file
    "[[token]]": read_tokens,
    "[[topics]]": read_policy,
    "window = ": read_policy,
    "[[rights]]": read_authorised,
    "docs/gateway.md": load_gateway_settings,
    "docs/syslog.md": load_syslog_settings,
    "docs/proxy.md": load_proxy_settings,
    "docs/operations/drills.md": load_topology,
    "[router]": partial(load_router_config, environ={}, flags={}),
    "[mesh]": partial(load_router_config, environ={}, flags={}),
    "[[mesh.peer]]": partial(load_router_config, environ={}, flags={}),
    "[[node]]": partial(load_router_config, environ={}, flags={}),
}


@pytest.mark.parametrize("where", BLOCKS)
def test_a_block_is_taken_by_its_reader(where: str, tmp_path: Path) -> None:
    text = BLOCKS[where].text
    readers = [read for mark, read in READERS.items() if where.startswith(f"{mark}:") or mark in text]
    assert readers, f"{where}: nothing is known to read such a file"
    file = tmp_path / "node-7.toml"
    file.write_text(text, encoding="utf-8")
    file.chmod(0o600)
    readers[0](str(file))


def test_a_name_that_is_wrong_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "router.toml"
    file.write_text('[mesh]\ndomain = ["volume.#"]\n')
    with pytest.raises(ConfigError, match="domain"):
        READERS["[mesh]"](str(file))
