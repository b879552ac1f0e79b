"""Routers with keys link to each other only as their keys say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from rpcmq import Client, Service
from rpcmq.config import load_router_config
from rpcmq.core.router.rights import EVERYTHING, Key
from rpcmq.errors import CallError, CallTimeout, ConfigError, NoConsumer
from rpcmq.server.embedded import EmbeddedRouter
from rpcmq.server.mesh_secret import MESH_SECRET, make_mesh_secret
from rpcmq.testing import eventually
from rpcmq.transport.key_files import read_key_file, write_private
from tests.keys import Folder, right

MESH = right("mesh", "#", exchanges=("*",))
Start = Callable[..., EmbeddedRouter]


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, Folder]:
    """The keys of the routers a, b and c, of which each has authorised each."""
    made = {}
    for name in "abc":
        (tmp_path / name).mkdir()
        made[name] = Folder(tmp_path / name)
    for name, folder in made.items():
        for other in set("abc") - {name}:
            folder.authorise(Key(other, made[other].router, (MESH,)))
    return made


@pytest.fixture
def start(folders: dict[str, Folder]) -> Iterator[Start]:
    with ExitStack() as stack:

        def start(name: str, peer: EmbeddedRouter | None = None, peer_key: str = "", **more: Any) -> EmbeddedRouter:
            flags = {"router.name": name, "router.listen": "tcp://127.0.0.1:0", "security.keys": str(folders[name])}
            peers = [{"url": peer.url, "server_key": peer_key or folders["a"].router}] if peer is not None else []
            router = EmbeddedRouter(load_router_config(flags=flags | {"mesh.peer": peers} | more))
            stack.callback(router.close, 0)
            return router

        yield start


def linked(router: EmbeddedRouter) -> list[str]:
    return [each.name for each in router.engine.mesh.neighbours]


def problem(router: EmbeddedRouter) -> str:
    """The text of the first obstacle to a link, once there is one."""
    rows = eventually(lambda: router.engine.mesh.handshake.problems.rows(monotonic()))
    return str(rows[0]["text"])


def test_routers_that_have_authorised_each_other_are_linked_until_a_key_is_revoked(
    start: Start, folders: dict[str, Folder]
) -> None:
    a = start("a")
    b = start("b", a)
    eventually(lambda: linked(a) == ["b"] and linked(b) == ["a"])
    keys = {each.identity.name: each.identity.key for router in (a, b) for each in router.engine.mesh.neighbours}
    assert keys == {"a": folders["a"].router, "b": folders["b"].router}
    folders["a"].revoke("b")
    eventually(lambda: not linked(a) and not any(each.is_usable for each in b.engine.mesh.neighbours))


def test_the_side_that_dials_has_authorised_the_other_too(start: Start, folders: dict[str, Folder]) -> None:
    folders["b"].revoke("a")
    a = start("a")
    b = start("b", a)
    assert problem(b) == f"{a.url}: the key of this connection is not authorised (any more)"
    assert not linked(b)


def test_all_rights_of_a_process_make_no_router(start: Start, folders: dict[str, Folder]) -> None:
    folders["a"].authorise(Key("b", folders["b"].router, (EVERYTHING,)))
    b = start("b", start("a"))
    assert "key 'b' is no router's: its file has no right 'mesh'" in problem(b)


def test_a_name_and_an_id_belong_to_one_key(start: Start) -> None:
    a = start("a")
    b = start("b", a, **{"router.id": 7})
    eventually(lambda: linked(b))
    c = start("c", a, **{"router.id": 7})
    assert "router id 7 is that of the key 'b', not 'c'" in problem(c)
    other = start("c", a, **{"router.name": "b", "router.id": 8})
    assert "key 'c' may not be identity 'b'" in problem(other)
    assert linked(a) == ["b"]


def test_a_wrong_server_key_is_no_link(start: Start, folders: dict[str, Folder]) -> None:
    b = start("b", start("a"), peer_key=folders["c"].router)
    assert "server_key" in problem(b)


@pytest.mark.parametrize("is_shared", [True, False])
def test_a_process_goes_on_at_a_router_whose_key_it_was_told(
    start: Start, folders: dict[str, Folder], is_shared: bool
) -> None:
    """With the secret of the mesh it keeps its origin there; without, nobody believes that this is its."""
    key_file = folders["a"].add("web")
    folders["b"].authorise(Key("web", read_key_file(key_file, client=True).public, (EVERYTHING,)))
    make_mesh_secret(folders["a"].path / MESH_SECRET)
    if is_shared:
        write_private(folders["b"].path / MESH_SECRET, (folders["a"].path / MESH_SECRET).read_text())
    a = start("a")
    b = start("b", a)
    eventually(lambda: linked(a) and linked(b) and len(a.engine.links.mesh["routers"]) == 2)
    with Client(a.url, key_file=key_file, reconnect_max_seconds=0.1) as client:
        assert client.query("summary", 20.0)["router"] == "a"
        origin = client.process.uplink.origin
        a.close(0)
        assert client.query("summary", 20.0)["router"] == "b"
        assert (client.process.uplink.origin == origin) is is_shared


def test_a_key_file_may_name_the_keys_of_several_routers(
    start: Start, folders: dict[str, Folder], tmp_path: Path
) -> None:
    b = start("b")
    keys = read_key_file(folders["a"].add("web"), client=True)
    folders["b"].authorise(Key("web", keys.public, (EVERYTHING,)))
    b.key_authenticator.look()  # type: ignore[union-attr]
    path = tmp_path / "several.key"
    write_private(path, replace(keys, routers={b.url: folders["b"].router}).text())
    # Nothing listens at the first one, whose key is that of a.
    with Client(["tcp://127.0.0.1:1", b.url], key_file=str(path)) as client:
        assert client.query("summary", 20.0)["router"] == "b"
    path.chmod(0o600)
    path.write_text(path.read_text().replace(folders["b"].router, "short"))
    with pytest.raises(ConfigError, match=r"routers: 'tcp://.*' = 'short' is no key"):
        read_key_file(path, client=True)


class Echo:
    def say(self, ctx: Any, text: str) -> str:
        return text


@pytest.fixture
def connect(folders: dict[str, Folder], start: Start) -> Iterator[Callable[[EmbeddedRouter], Client]]:
    """A client of one of the routers, of which any process may do anything at a and b."""
    with ExitStack() as stack:
        key_file = folders["a"].add("ops", identities=("*",))
        public = read_key_file(key_file, client=True).public
        for name in "bc":
            folders[name].authorise(Key("ops", public, (EVERYTHING,), ("*",)))

        def connect(router: EmbeddedRouter) -> Client:
            name = router.settings.router_name
            keys = replace(read_key_file(key_file, client=True), router=folders[name].router)
            path = folders[name].path / f"{len(list(folders[name].path.iterdir()))}.key"
            write_private(path, keys.text())
            return stack.enter_context(Client(router.url, key_file=str(path)))

        yield connect


def say(client: Client, topic: str, timeout: float = 20.0) -> str:
    answer = client.call(None, topic, {"method": "say", "args": {"text": topic}}, mandatory=True, timeout=timeout)
    return str(answer)


@pytest.mark.parametrize("where", ["rights", "allow_in", "allow_out"])
def test_a_link_is_limited_to_topics(
    start: Start, folders: dict[str, Folder], connect: Callable[[EmbeddedRouter], Client], where: str
) -> None:
    only = ["open.#"]
    if where == "rights":
        folders["a"].authorise(Key("b", folders["b"].router, (right("mesh", *only),)))
    a = start("a", **{"mesh.peer": _nobody(folders["b"].router, "allow_in", only) if where == "allow_in" else []})
    to_a = {"url": a.url, "server_key": folders["a"].router}
    b = start("b", **{"mesh.peer": [to_a | ({"allow_out": only} if where == "allow_out" else {})]})
    eventually(lambda: linked(a) == ["b"] and linked(b) == ["a"])
    there, here = connect(a), connect(b)
    heard: list[str] = []
    with (
        Service("open.x", Echo(), client=there),
        Service("shut", Echo(), client=there),
    ):
        there.subscribe("#", lambda ctx, topic, payload: heard.append(topic))
        eventually(lambda: _reaches(here, "open.x"))
        with pytest.raises(CallError) as refused:
            say(here, "shut", 0.3)
        assert isinstance(refused.value, NoConsumer | CallTimeout)
        assert say(there, "shut") == "shut", "at its own router anybody may call it"
        here.publish(None, "shut", {})
        here.publish(None, "open.x", {})
        eventually(lambda: heard)
        assert heard == ["open.x"]


def _reaches(client: Client, topic: str) -> bool:
    """Return whether the client's router knows a consumer of ``topic`` by now."""
    try:
        return say(client, topic) == topic
    except NoConsumer:
        return False


def _nobody(key: str, *limit: object) -> list[dict[str, object]]:
    """A table for a router that is not dialled: nothing listens there."""
    name, patterns = limit
    return [{"url": "tcp://127.0.0.1:1", "server_key": key, str(name): patterns}]
