"""A router's peers, ids and endpoints, as its settings say them."""

from __future__ import annotations

import socket

import pytest

from rpcmq.config import RouterConfig, load_router_config
from rpcmq.errors import ConfigError
from rpcmq.server.embedded import EmbeddedRouter
from rpcmq.server.mesh_urls import advertised_urls, check_peers
from rpcmq.server.settings import apply, settings_for

KEY = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"


def config(**flags: object) -> RouterConfig:
    return load_router_config(flags={name.replace("__", "."): value for name, value in flags.items()})


# --- ids ----------------------------------------------------------------------------------------


def test_a_router_without_peers_has_the_id_1_in_keys_and_one_of_its_own_in_a_mesh() -> None:
    one, other = settings_for(config(router__name="a")), settings_for(config(router__name="b"))
    assert one.router_id == other.router_id == 1
    assert len({1, one.mesh_id, other.mesh_id}) == 3
    assert settings_for(config(router__name="a")).mesh_id == one.mesh_id
    assert settings_for(config(router__id=9)).mesh_id == 9
    apply(config(router__name="a"), one)
    assert one.mesh_id == settings_for(config(router__name="a")).mesh_id, "a reload changes no id"


def test_an_id_is_made_from_name_and_endpoint_and_stays() -> None:
    def made(name: str, listen: str = "tcp://127.0.0.1:7701") -> int:
        flags = {"router.name": name, "router.listen": listen, "mesh.peers": "tcp://127.0.0.1:7700"}
        return settings_for(load_router_config(flags=flags)).router_id

    assert made("b") == made("b") > 1
    assert settings_for(config(router__name="b", mesh__peers="tcp://10.0.0.1:7700")).mesh_id > 1
    assert len({made("b"), made("c"), made("b", "tcp://127.0.0.1:7702")}) == 3


@pytest.mark.parametrize("listen", ["tcp://127.0.0.1:0", "tcp://127.0.0.1:*", "inproc://r"])
def test_where_the_endpoint_is_another_at_each_start_so_is_the_id(listen: str) -> None:
    one = config(router__listen=listen, mesh__peers="tcp://127.0.0.1:7700")
    settings = settings_for(one)
    assert settings.router_id != settings_for(one).router_id
    before = settings.router_id
    apply(one, settings)
    assert settings.router_id == before, "a reload changes no id"


def test_an_id_that_is_given_is_taken() -> None:
    assert settings_for(config(router__id=9, mesh__peers="tcp://127.0.0.1:7701")).router_id == 9


# --- endpoints ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("advertise", "bound", "told"),
    [
        ("", "tcp://10.0.0.2:7700", ("tcp://10.0.0.2:7700",)),
        ("", "ipc:///run/rpcmq", ("ipc:///run/rpcmq",)),
        ("", "tcp://0.0.0.0:7701", (f"tcp://{socket.gethostname()}:7701",)),
        ("", "tcp://[::]:7701", (f"tcp://{socket.gethostname()}:7701",)),
        ("tcp://b.example:7700,tcp://10.0.0.2:7700", "tcp://0.0.0.0:7701", ("tcp://b.example:7700", "tcp://10.0.0.2:7700")),
    ],
)  # fmt: skip
def test_others_are_told_how_to_reach_a_router(advertise: str, bound: str, told: tuple[str, ...]) -> None:
    assert advertised_urls(config(mesh__advertise=advertise), bound) == told


def test_a_running_router_tells_its_port() -> None:
    router = EmbeddedRouter(config(router__listen="tcp://127.0.0.1:0"))
    try:
        assert router.engine.mesh.own.urls == (router.url,)
    finally:
        router.close(0)


# --- peers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("listen", "peer"),
    [
        ("tcp://127.0.0.1:7700", "tcp://127.0.0.1:7700"),
        ("tcp://127.0.0.1:7700", "tcp://localhost:7700"),
        ("tcp://0.0.0.0:7700", "tcp://127.0.0.1:7700"),
        ("tcp://0.0.0.0:7700", f"tcp://{socket.gethostname()}:7700"),
        ("tcp://10.0.0.2:7700", "tcp://10.0.0.2:7700"),
        ("ipc:///run/rpcmq", "ipc:///run/rpcmq"),
    ],
)
def test_a_peer_that_is_the_router_itself_is_refused(listen: str, peer: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_peers(config(router__listen=listen, mesh__peers=f"tcp://10.0.0.9:7700,{peer}"))
    assert str(caught.value) == (
        f"mesh.peers: '{peer}' is this router itself (router.listen = '{listen}'); name other routers of the mesh, or "
        "none if this is the first"
    )


def test_an_advertised_endpoint_is_the_router_itself() -> None:
    with pytest.raises(ConfigError, match=r"mesh\.peer: 'tcp://b:7700' is this router itself"):
        check_peers(config(mesh__peer=[{"url": "tcp://b:7700"}], mesh__advertise="tcp://b:7700"))


def test_a_router_does_not_start_with_itself_as_a_peer() -> None:
    with pytest.raises(ConfigError, match="is this router itself"):
        EmbeddedRouter(config(router__listen="tcp://127.0.0.1:7700", mesh__peers="tcp://127.0.0.1:7700"))


@pytest.mark.parametrize(
    ("listen", "peer"),
    [
        ("tcp://127.0.0.1:7700", "tcp://127.0.0.1:7701"),
        ("tcp://10.0.0.2:7700", "tcp://127.0.0.1:7700"),
        ("tcp://0.0.0.0:7700", "tcp://10.0.0.9:7700"),
        ("ipc:///run/a", "ipc:///run/b"),
    ],
)
def test_other_routers_are_peers(listen: str, peer: str) -> None:
    check_peers(config(router__listen=listen, mesh__peers=peer))


def test_a_peer_is_given_once() -> None:
    with pytest.raises(ConfigError, match=r"'tcp://b:7700' has a table \[\[mesh.peer\]\], too"):
        check_peers(config(mesh__peers="tcp://b:7700", mesh__peer=[{"url": "tcp://b:7700"}]))


def test_with_keys_each_peer_needs_its_key_and_without_none_has_one() -> None:
    keyed = {"url": "tcp://b:7700", "server_key": KEY}
    check_peers(config(security__keys="/etc/rpcmq", mesh__peer=[keyed]))
    with pytest.raises(ConfigError, match=r"mesh\.peers: 'tcp://b:7700' has no server_key.*\[\[mesh\.peer\]\]"):
        check_peers(config(security__keys="/etc/rpcmq", mesh__peers="tcp://b:7700"))
    with pytest.raises(ConfigError, match="has a server_key, but this router has no keys"):
        check_peers(config(mesh__peer=[keyed]))
    check_peers(config(security__keys="/etc/rpcmq", mesh__peer=[keyed | {"allow_in": ["a"]}]))
    with pytest.raises(ConfigError, match="has allow_in or allow_out, by which nobody is limited without keys"):
        check_peers(config(mesh__peer=[{"url": "tcp://b:7700", "allow_in": ["a"]}]))
