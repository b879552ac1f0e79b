"""The keys of other routers: what they may be, and what no process may."""

from __future__ import annotations

from typing import Any

import pytest

from rpcmq.core.router.access_control import Admission, Refusal
from rpcmq.core.router.rights import ALL_VERBS, EVERYTHING, MESH_VERB, Key, Right
from rpcmq.core.router.settings import Settings
from rpcmq.testing.network import Network
from rpcmq.wire.bodies import WelcomeBody
from rpcmq.wire.mesh_bodies import RoutersBody
from tests.core.router.keyed import ROOT, WEB, rekey, rows

ROUTER = Right(frozenset([MESH_VERB]), ("#",), ("*",))
B, C = Key("b", "B", (ROUTER,)), Key("c", "C", (ROUTER,))


@pytest.fixture
def meshed(net: Network) -> Network:
    """A router that lets in two other ones, and processes."""
    net.router.set_authorized_keys(net.now, [B, C, WEB, ROOT])
    return net


def admitted(net: Network, user: str, name: str) -> Admission:
    return net.router.links.access.admit(user, name)


def refusal(net: Network, user: str, name: str, router_id: int) -> str:
    with pytest.raises(Refusal) as caught:
        admitted(net, user, name).check_router(router_id)
    assert caught.value.reason == "key"
    return str(caught.value)


def test_a_key_with_all_rights_of_a_process_is_no_router_s(meshed: Network) -> None:
    assert MESH_VERB not in ALL_VERBS and not ROOT.is_router
    assert not EVERYTHING.allows(MESH_VERB, "", "compute")
    for user, name in (("ROOT", "root"), ("WEB", "web")):
        assert refusal(meshed, user, name, 7) == f"key {name!r} is no router's: its file has no right 'mesh'"
    assert meshed.router.refused["router with a wrong key"] == 2
    meshed.run()
    assert [note.event for note in meshed.notes] == ["denied"] * 2


def test_a_router_s_key_is_no_process_s(meshed: Network) -> None:
    for queue_type in ("roundrobin", "pubsub"):
        process = meshed.process("b", queue_type, user="B")
        assert process.refusals == [("key", "key 'b' is a router's: no process may use it")]
        assert not process.welcomes
    assert meshed.router.refused["process with a wrong key"] == 2
    assert len(meshed.router.links) == 0


def test_a_router_s_name_is_bound_to_its_key(meshed: Network) -> None:
    assert "key 'b' may not be identity 'c'" in refusal(meshed, "B", "c", 7)
    admitted(meshed, "B", "b").check_router(7)


def test_an_id_has_one_key(meshed: Network) -> None:
    admitted(meshed, "B", "b").check_router(7)
    assert refusal(meshed, "C", "c", 7) == "router id 7 is that of the key 'b', not 'c'"
    admitted(meshed, "C", "c").check_router(8)
    assert refusal(meshed, "B", "b", 8) == "router id 8 is that of the key 'c', not 'b'"
    assert {row["name"]: row["refused"] for row in rows(meshed)}["c"] == {"router": 1}


def test_a_key_has_one_id_while_it_is_linked_and_may_come_back_with_another(meshed: Network) -> None:
    admitted(meshed, "B", "b").check_router(7)
    usage = next(u for u in meshed.router.links.access.usages() or () if u.key is B)
    usage.links = 1
    admitted(meshed, "B", "b").check_router(7)
    assert refusal(meshed, "B", "b", 9) == (
        "key 'b' is that of the router with the id 7, which is linked, not 9; each router needs a key of its own"
    )
    usage.links = 0
    admitted(meshed, "B", "b").check_router(9)
    admitted(meshed, "C", "c").check_router(7)


def test_an_id_is_free_when_its_key_is_revoked(meshed: Network) -> None:
    admitted(meshed, "B", "b").check_router(7)
    rekey(meshed, C)
    admitted(meshed, "C", "c").check_router(7)


def test_a_process_ends_when_its_key_becomes_a_router_s(meshed: Network) -> None:
    meshed.process("web", user="WEB")
    rekey(meshed, Key("web", "WEB", (ROUTER,)), B, C)
    assert len(meshed.router.links) == 0


def test_an_origin_is_believed_if_any_of_the_secrets_has_signed_it(net: Network) -> None:
    def token(*secrets: bytes) -> tuple[int, str]:
        lone = Network()
        lone.router.set_authorized_keys(lone.now, [ROOT], secrets)
        welcome = lone.process("root", user="ROOT").welcome
        return welcome.handle, welcome.token

    net.router.set_authorized_keys(net.now, [ROOT], (b"mesh", b"own"))
    access = net.router.links.access.admit("ROOT", "root")
    for secrets, is_believed in (((b"mesh",), True), ((b"own", b"x"), True), ((b"x", b"mesh"), False)):
        handle, signed = token(*secrets)
        assert access.may_keep_handle(net.settings.router_id, handle, signed) is is_believed
        assert not access.may_keep_handle(net.settings.router_id + 1, handle, signed)


def test_an_origin_from_outside_of_a_mesh_is_kept_only_if_the_token_proves_it(net: Network) -> None:
    """Whoever names another process's origin, or a token that is not its key's, gets an origin of its own."""
    alone = Network(Settings(router_id=9))
    alone.router.set_authorized_keys(alone.now, [ROOT, WEB], (b"mesh",))
    root, web = alone.process("root", user="ROOT").welcome, alone.process("web", user="WEB").welcome
    net.router.links.mesh = RoutersBody(mesh="east", routers=()).encode()
    net.router.set_authorized_keys(net.now, [ROOT, WEB], (b"mesh", b"own"))

    def origin(identity: str, user: str, claims: WelcomeBody, token: str) -> tuple[int, int]:
        says: dict[str, Any] = {"origin_router": claims.router_id, "handle": claims.handle, "token": token}
        found = net.process(identity, user=user, follows_mesh=True, moves=1, **says).welcome
        return found.router_id, found.handle

    lies = (root, web.token), (root, root.token), (root, ""), (web, root.token), (web, web.token + "0")
    for number, (claims, token) in enumerate(lies):
        router_id, _ = origin(f"web:{number}", "WEB", claims, token)
        assert router_id == net.settings.router_id
    assert origin("web", "WEB", web, web.token) == (9, web.handle)
    assert origin("root", "ROOT", root, root.token) == (9, root.handle)
