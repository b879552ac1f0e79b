"""``rpcmq mesh``, and ``rpcmq ls`` and ``rpcmq top`` of all routers of a mesh, as an operator types them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gevent
import pytest

from rpcmq import Client, Service
from rpcmq.config import load_router_config
from rpcmq.core.router.rights import Key
from rpcmq.server.embedded import EmbeddedRouter
from rpcmq.testing import InProcessRouter, eventually, router, routers
from tests.cli.endpoints import Compute
from tests.keys import Folder, right

pytestmark = pytest.mark.integration

Invoke = Callable[..., SimpleNamespace]


@pytest.fixture(scope="module")
def mesh() -> Iterator[list[InProcessRouter]]:
    """The routers a, b and c."""
    with routers(3) as found:
        yield found


def answer_of(ended: SimpleNamespace) -> dict[str, Any]:
    assert ended.stderr == ""
    answer: dict[str, Any] = json.loads(ended.stdout)
    return answer


def test_all_routers_and_links_are_listed(mesh: list[InProcessRouter], invoke: Invoke) -> None:
    ended = invoke("mesh", env={"RPCMQ_ROUTER": mesh[1].url})
    assert (ended.returncode, ended.stderr) == (0, "")
    lines = [line.split() for line in ended.stdout.splitlines()]
    assert [line[:4] for line in lines if line and line[-1].startswith("tcp:")] == [
        [name, str(number), "member", "2"] for number, name in enumerate("abc", 1)
    ]
    links = [line[:3] for line in lines if len(line) > 2 and line[2] == "answering"]
    assert links == [[one, other, "answering"] for one in "abc" for other in "abc" if one != other]


def test_the_same_as_json(mesh: list[InProcessRouter], invoke: Invoke) -> None:
    answer = answer_of(invoke("mesh", "--json", "--router", mesh[2].url))
    assert (answer["mesh"], answer["silent"], answer["not_linked"]) == ("rpcmq", [], [])
    views = {view["router"]: view for view in answer["routers"]}
    assert sorted(views) == ["a", "b", "c"]
    row = next(row for row in views["a"]["routers"] if row["name"] == "b")
    assert row["urls"] == [mesh[1].url] and row["state"] == "answering" and row["dialed"] == ""
    assert row["messages_in"] > 0 and row["messages_out"] > 0 and row["bytes_out"] > 0
    assert views["b"]["peers"] == [mesh[0].url]


def test_a_path_between_two_routers(mesh: list[InProcessRouter], invoke: Invoke) -> None:
    env = {"RPCMQ_ROUTER": mesh[0].url}
    ended = invoke("mesh", "path", "b", "3", env=env)
    assert (ended.returncode, ended.stderr) == (0, "") and ended.stdout.startswith("b -> c: direct")
    assert answer_of(invoke("mesh", "path", "a", "c", "--json", env=env))["path"] == ["a", "c"]
    for names, problem in ((("a", "x"), "router 'x' is not known to router 'a'"), (("a", "1"), "the same router")):
        ended = invoke("mesh", "path", *names, env=env)
        assert ended.returncode == 2 and problem in ended.stderr


def test_a_path_over_another_router(invoke: Invoke) -> None:
    with ExitStack() as stack:
        line: list[InProcessRouter] = []
        for number, name in enumerate("abc", 1):
            peers = line[-1].url if line else ""
            settings = {"router_id": number, "router_name": name, "mesh_peers": peers, "mesh_dial": "peers"}
            line.append(stack.enter_context(router(**settings)))
        env = {"RPCMQ_ROUTER": line[1].url}
        eventually(lambda: _linked(line[0]) == ["b", "c"] and _linked(line[2]) == ["a", "b"])
        lines = invoke("mesh", "path", "a", "c", env=env).stdout.splitlines()
        assert [each.partition(", ")[0] for each in lines] == ["a -> b -> c: 2 hops", "  a -> b", "  b -> c"]
        answer = answer_of(invoke("mesh", "path", "c", "a", "--json", env=env))
        assert answer["path"] == ["c", "b", "a"] and answer["problem"] is None
        assert [(hop["router"], hop["other"]) for hop in answer["hops"]] == [("c", "b"), ("b", "a")]
        assert sum(each.rstrip().endswith("over b") for each in invoke("mesh", env=env).stdout.splitlines()) == 2


def test_ls_of_all_routers(mesh: list[InProcessRouter], invoke: Invoke) -> None:
    with Client(mesh[1].url) as client, Service("listed", Compute(), host="node-7", client=client):
        ended = invoke("ls", "--mesh", "--view", "topics", "--router", mesh[0].url)
        assert ended.returncode == 0
        consumers = ended.stdout[ended.stdout.index("Consumers") :].splitlines()
        assert [line.split()[:3] for line in consumers if "listed" in line] == [["b", "listed", "node-7"]]
        answer = answer_of(invoke("ls", "--mesh", "--json", "--router", mesh[0].url))
    assert [each["router"] for each in answer["routers"]] == ["a", "b", "c"] and answer["silent"] == []
    assert [each["answer"]["router_id"] for each in answer["routers"]] == [1, 2, 3]


def test_top_of_all_routers(mesh: list[InProcessRouter], invoke: Invoke) -> None:
    with Client(mesh[2].url) as client, Service("watched", Compute(), host="node-7", client=client):
        calling = gevent.spawn(_call_for_ever, client)
        try:
            ended = invoke("top", "--mesh", "--once", "--json", "--interval", "0.5", "--router", mesh[0].url)
        finally:
            calling.kill()
    sample = answer_of(ended)
    assert sorted(each["router"] for each in sample["routers"]) == ["a", "b", "c"] and sample["silent"] == []
    busy = {each["router"]: [row["topic"] for row in each["methods"]] for each in sample["routers"]}
    assert "watched" in busy["c"]
    ended = invoke("top", "--mesh", "--once", "--interval", "0.2", "--router", mesh[0].url)
    assert ended.stdout.startswith("3 routers: ")


def _call_for_ever(client: Client) -> None:
    while True:
        client.call(None, "watched", {"method": "add", "args": {"a": 1}}, timeout=20)
        gevent.sleep(0.01)


def test_a_router_leaves_the_mesh_and_joins_it_again(mesh: list[InProcessRouter], invoke: Invoke) -> None:
    ended = invoke("mesh", "leave", "--router", mesh[2].url)
    assert (ended.returncode, ended.stdout) == (0, "left the mesh: 2 routers told\n")
    eventually(lambda: _linked(mesh[0]) == ["b"])
    ended = invoke("mesh", "--router", mesh[0].url)
    assert ended.returncode == 0 and "c" in [line.split()[0] for line in ended.stdout.splitlines() if " left " in line]
    ended = invoke("mesh", "--router", mesh[2].url)
    assert ended.returncode == 0 and "not linked" not in ended.stdout
    ended = invoke("mesh", "join", mesh[0].url, "--timeout", "20", "--json", "--router", mesh[2].url)
    assert ended.returncode == 0 and answer_of(ended)["linked"] is True
    eventually(lambda: _linked(mesh[0]) == ["b", "c"] and _linked(mesh[1]) == ["a", "c"])


def _linked(router: InProcessRouter) -> list[str]:
    return sorted(row["name"] for row in router.query("mesh")["routers"] if row["state"] == "answering")


def test_a_router_that_cannot_be_joined_says_why(invoke: Invoke) -> None:
    with routers(1) as (lone,):
        ended = invoke("mesh", "join", "tcp://127.0.0.1:1", "--timeout", "1", "--router", lone.url)
        assert ended.returncode == 1 and "nothing listens there" in ended.stderr
        ended = invoke("mesh", "join", "127.0.0.1:1", "--router", lone.url)
        assert ended.returncode == 2 and "expected a URL" in ended.stderr
        ended = invoke("mesh", "--router", lone.url)
        assert ended.returncode == 1 and "tcp://127.0.0.1:1: nothing listens there" in ended.stdout
        ended = invoke("mesh", "forget", "tcp://127.0.0.1:1", "--router", lone.url)
        assert (ended.returncode, ended.stdout) == (0, "tcp://127.0.0.1:1 is dialled no more\n")
        ended = invoke("mesh", "--router", lone.url)
        assert ended.returncode == 0 and "tcp://127.0.0.1:1" not in ended.stdout
        ended = invoke("mesh", "forget", "tcp://127.0.0.1:1", "--router", lone.url)
        assert ended.returncode == 9 and "none of the urls that this router may dial no more" in ended.stderr


def started_router(stack: ExitStack, name: str, *peers: EmbeddedRouter, **flags: object) -> EmbeddedRouter:
    settings: dict[str, object] = {"router.name": name, "router.listen": "tcp://127.0.0.1:0"}
    settings |= {} if flags else {"mesh.peers": [each.url for each in peers]}
    router = EmbeddedRouter(load_router_config(flags=settings | flags))
    stack.callback(router.close, 0)
    eventually(lambda: len(router.engine.mesh.neighbours) == len(peers))
    return router


def test_a_router_that_does_not_answer_is_named(invoke: Invoke) -> None:
    with ExitStack() as stack:
        first = started_router(stack, "a")
        started_router(stack, "b", first).close(0)
        ended = invoke("mesh", "--timeout", "1", "--router", first.url)
        assert ended.returncode == 1
        assert "not linked: a and b: " in ended.stdout and "router b does not answer: " in ended.stdout
        ended = invoke("mesh", "path", "a", "b", "--router", first.url)
        assert ended.returncode == 1 and "a -> b: no link: " in ended.stderr


def test_with_keys_each_router_is_asked_with_its_own(tmp_path: Path, invoke: Invoke) -> None:
    folders = {}
    for name in "ab":
        (tmp_path / name).mkdir()
        folders[name] = Folder(tmp_path / name)
    for name, other in ("ab", "ba"):
        folders[name].authorise(Key(other, folders[other].router, (right("mesh", "#", exchanges=("*",)),)))
    key_file = folders["a"].add("ops")
    folders["b"].file("ops").write_text(folders["a"].file("ops").read_text())
    with ExitStack() as stack:
        first = started_router(stack, "a", **{"security.keys": str(folders["a"])})
        peer = {"url": first.url, "server_key": folders["a"].router}
        started_router(stack, "b", first, **{"security.keys": str(folders["b"]), "mesh.peer": [peer]})
        ended = invoke("mesh", "--json", "--key-file", key_file, "--router", first.url)
        assert [view["router"] for view in answer_of(ended)["routers"]] == ["a", "b"]
