"""The topics that may pass a link between routers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rpcmq.config.peers import Peer
from rpcmq.core.router.mesh.limits import DENIED, LinkLimits, limits_of
from rpcmq.core.router.mesh.places import Tag
from rpcmq.core.router.rights import MESH_VERB, Key, Right
from rpcmq.wire import Address, Flag, Kind, pack


def link_of(*topics: str, exchanges: tuple[str, ...] = ("*",)) -> Any:
    key = Key("b", "B", (Right(frozenset([MESH_VERB]), topics, exchanges),))
    return SimpleNamespace(key=key, counters={DENIED: 0}, sent=[], send=lambda message: None)


def block(topic: str, server: str = "", exchange: str = "") -> bytes:
    return Address(topic, server, exchange).encode()


def test_a_link_over_which_all_may_pass_has_no_limits() -> None:
    assert limits_of(SimpleNamespace(key=None), [Peer("tcp://b:1", allow_in=("a",))]) is None  # type: ignore[arg-type]
    assert limits_of(link_of("#"), [Peer("tcp://b:1", "B"), Peer("tcp://c:1", "C", ("a",))]) is None


@pytest.mark.parametrize(
    ("topics", "peer", "brings", "gets"),
    [
        (("open.#",), Peer("tcp://b:1", "B"), {"open.x"}, {"open.x", "shut"}),
        (("#",), Peer("tcp://b:1", "B", allow_in=("open.#",)), {"open.x"}, {"open.x", "shut"}),
        (("#",), Peer("tcp://b:1", "B", allow_out=("open.#",)), {"open.x", "shut"}, {"open.x"}),
        (("shut",), Peer("tcp://b:1", "B", allow_in=("open.#",)), set(), {"open.x", "shut"}),
    ],
)
def test_in_and_out(topics: tuple[str, ...], peer: Peer, brings: set[str], gets: set[str]) -> None:
    limits = limits_of(link_of(*topics), [peer])
    assert limits is not None
    for topic in ("open.x", "shut"):
        assert limits.may_bring(block(topic)) is (topic in brings)
        assert limits.may_get(block(topic)) is (topic in gets)


def test_servers_groups_and_exchanges() -> None:
    limits = LinkLimits(link_of("#"), ("compute", "nova/#"), ())
    assert limits.may_bring(block("compute")) and limits.may_bring(block("compute", "audit"), is_group=True)
    assert not limits.may_bring(block("compute", "node-7")), "a server's own topic is another one"
    assert limits.may_bring(block("compute", "node-7", "nova")) and not limits.may_bring(block("compute", "", "other"))
    assert not limits.may_get(block("compute"))


def test_messages_that_may_not_be_brought_are_not_handled() -> None:
    handled: list[int] = []
    link = link_of("open")
    answers: list[bytes] = []
    link.send = answers.append
    handlers = LinkLimits(link, ("*/#",), ("*/#",)).handlers(
        [lambda now, link, message: handled.append(message[2])] * 256
    )

    def give(kind: Kind, topic: str, flags: int = 0, tag: int = Tag.TOPIC) -> None:
        message = pack(kind, b"", key=bytes(20), address=block(topic), flags=flags, consumer=tag)
        handlers[kind](0.0, link, message)

    for kind in (Kind.REQUEST, Kind.CAST, Kind.WANT, Kind.INTRODUCE):
        give(kind, "open")
    assert len(handled) == 4 and answers == []
    for kind in (Kind.REQUEST, Kind.CAST, Kind.WANT, Kind.INTRODUCE):
        give(kind, "shut")
    give(Kind.CAST, "shut", Flag.FANOUT)
    # A limited router takes over no calls of others, whatever their topics are.
    give(Kind.WHERE, "open")
    give(Kind.FENCES, "open")
    assert len(handled) == 4 and link.counters[DENIED] == 5
    assert len(answers) == 3, "of the REQUEST, the CAST and the INTRODUCE"


def test_losses_are_told_of_topics_that_may_be_brought_only() -> None:
    handled: list[bytes] = []
    handlers = LinkLimits(link_of("open"), ("*/#",), ("*/#",)).handlers(
        [lambda now, link, message: handled.append(message)] * 256
    )
    link = link_of("open")
    for address in (block("open"), block("shut"), b""):
        handlers[Kind.LOST](0.0, link, pack(Kind.LOST, bytes(4), address=address))
    assert len(handled) == 1 and link.counters[DENIED] == 1
