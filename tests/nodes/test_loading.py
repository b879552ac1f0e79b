"""Nodes are found by their entry points; whatever is wrong with them is said before the router starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rpcmq.config import diff_live, load_router_config
from rpcmq.config.nodes import NodeTable
from rpcmq.errors import ConfigError
from rpcmq.nodes.loading import plans_for
from tests.nodes.distributions import install

SOURCE = """
from dataclasses import dataclass
from rpcmq.nodes import ConfigError, Node, integer, seconds, setting


@dataclass(frozen=True)
class Settings:
    parties: int = setting(2, integer(1, 100), "processes that meet")
    pause: float = setting(1.0, seconds(0.1, 60), "seconds between")

    def __post_init__(self):
        if self.parties == 13:
            raise ConfigError("parties = 13: brings bad luck")


class Barrier(Node):
    Settings = Settings
    kinds = {0x90: "arrive"}


class Other(Node):
    kinds = {0x91: "", 0x90: "take"}


class Old(Node):
    api_version = 0


class Low(Node):
    kinds = {0x80: "x", "0x91": "y"}


class Plain(Node):
    @dataclass
    class Settings:
        x: int = 3


class Stranger:
    pass
"""


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "site"
    install(
        folder, "some_nodes", SOURCE, barrier="Barrier", other="Other", old="Old", low="Low", plain="Plain",
        stranger="Stranger", missing="Missing",
    )  # fmt: skip
    install(folder, "broken_nodes", "raise OSError('no disk')", broken="Broken")
    install(folder, "leaving_nodes", "import sys; sys.exit(0)", leaving="Leaving")
    monkeypatch.syspath_prepend(str(folder))
    return


def tables(*given: dict[str, Any]) -> tuple[NodeTable, ...]:
    return load_router_config(flags={"node": list(given)}).node


def problems(*given: dict[str, Any]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        plans_for(tables(*given))
    return str(caught.value).splitlines()


def test_a_node_gets_its_settings_and_bounds() -> None:
    (plan,) = plans_for(tables({"type": "barrier", "parties": 5, "pause": "2s", "max_bytes": "1MiB", "max_seconds": 1}))
    assert (plan.name, plan.type_name, plan.origin) == ("barrier", "barrier", "some_nodes 1.2")
    assert (plan.settings.parties, plan.settings.pause, plan.max_bytes, plan.max_seconds) == (5, 2.0, 1 << 20, 1.0)


def test_an_unknown_type_is_refused_with_those_that_there_are() -> None:
    (line,) = problems({"type": "barier"})
    assert line.startswith("node[0].type = 'barier': expected a node type that is installed: ")
    assert "barrier, broken" in line and line.endswith("; did you mean 'barrier'?")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"type": "barrier", "partys": 3}, "node[0].partys: unknown setting of this node type; did you mean parties?"),
        ({"type": "barrier", "x": 3}, "node[0].x: unknown setting of this node type; known: parties, pause"),
        ({"type": "other", "x": 3}, "node[0].x: unknown setting of this node type; known: none"),
        ({"type": "barrier", "parties": "3"}, "node[0].parties = '3': expected an integer from 1 to 100"),
        ({"type": "barrier", "parties": 13}, "node[0]: its settings are refused: parties = 13: brings bad luck"),
        ({"type": "broken"}, "cannot be loaded from 'broken_nodes:Broken' of broken_nodes 1.2: OSError: no disk"),
        ({"type": "leaving"}, "cannot be loaded from 'leaving_nodes:Leaving' of leaving_nodes 1.2: SystemExit: 0"),
        ({"type": "missing"}, "AttributeError"),
        ({"type": "old"}, "is written for version 0 of rpcmq.nodes, and this is version 1"),
        ({"type": "stranger"}, "is no class derived from rpcmq.nodes.Node"),
        ({"type": "plain"}, "must be a dataclass whose fields are made with rpcmq.nodes.setting()"),
    ],
)
def test_what_is_wrong_is_named(given: dict[str, Any], expected: str) -> None:
    (line,) = problems(given)
    assert expected in line


def test_each_kind_beyond_the_range_is_named() -> None:
    first, second = problems({"type": "low"})
    assert "claims the kind 128; those of plug-ins are from 0x90 to 0xff" in first
    assert "claims the kind '0x91'" in second


def test_a_type_that_two_distributions_have_is_neither_of_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "more", "more_nodes", SOURCE, barrier="Barrier", tap="Other")
    monkeypatch.syspath_prepend(str(tmp_path / "more"))
    text = "is a node type of more_nodes 1.2 and of some_nodes 1.2: uninstall all but one of them"
    assert problems({"type": "barrier"}) == [f"node[0].type = 'barrier': {text}"]
    assert "more_nodes 1.2 and of rpcmq" in problems({"type": "tap"})[0]
    assert [plan.name for plan in plans_for(tables({"type": "poison"}))] == ["poison"]


def test_two_nodes_that_claim_one_kind_are_refused_with_both_names() -> None:
    (line,) = problems({"type": "barrier", "name": "gate"}, {"type": "other"})
    assert line == (
        "node: kind 0x90 is claimed by 'gate' (type 'barrier' of some_nodes 1.2) and by 'other' (type 'other' of "
        "some_nodes 1.2): leave out one of them"
    )


def test_all_that_is_wrong_is_said_at_once() -> None:
    assert len(problems({"type": "barrier", "x": 1, "parties": 0}, {"type": "nothing"}, {"type": "old"})) == 4


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"name": "x"}, "node[0] = {'name': 'x'}: expected a table with type"),
        ({"type": "Tap"}, "node[0].type = 'Tap': expected a name of lower-case letters"),
        ({"type": "tap", "max_bytes": 3}, "node[0].max_bytes = 3: expected bytes >= 65536"),
        ({"type": "tap", "max_seconds": 0}, "node[0].max_seconds = 0: expected seconds from 0.001 to 10"),
        (3, "node[0] = 3: expected a table [[node]]"),
        ({"type": "tap", "name": "mesh"}, "node[0].name = 'mesh': expected another name: the router's own controls"),
    ],
)
def test_tables_are_checked_before_any_code_is_loaded(given: Any, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_router_config(flags={"node": [given]})
    assert expected in str(caught.value)


def test_names_are_unique_and_files_have_tables(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="another name than in the tables before"):
        load_router_config(flags={"node": [{"type": "tap"}, {"type": "poison", "name": "tap"}]})
    file = tmp_path / "router.toml"
    file.write_text('node = 3\n[router]\nname = "r"\n')
    with pytest.raises(ConfigError, match=r"node = 3: expected tables \[\[node\]\]"):
        load_router_config(str(file))
    file.write_text('[router]\nname = "r"\n[[node]]\ntype = "tap"\nrate = 5\n')
    config = load_router_config(str(file))
    assert config.node == (NodeTable("tap", "tap", options={"rate": 5}),)
    assert diff_live(load_router_config(), config)[1]["node"] == config.node
