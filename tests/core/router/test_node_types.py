"""A node type says of which of its kinds a message that breaks the protocol is answered."""

from __future__ import annotations

from typing import Any

import pytest

from rpcmq.core.router.kind_table import KindTable
from rpcmq.core.router.model import Link
from rpcmq.core.router.node_type import NodeContext, NodeType
from rpcmq.core.router.router import NODE_TYPES, Router
from rpcmq.errors import ProtocolError
from rpcmq.testing.network import Network
from rpcmq.wire import Kind

ASKED: Any = 0x70
TOLD: Any = 0x71


class Strict(NodeType):
    """Refuses whatever comes; of one of its two kinds somebody waits for the answer."""

    def __init__(self, context: NodeContext) -> None:
        self.kinds = {ASKED: self._refuse, TOLD: self._refuse}
        self.answered = {ASKED}

    def _refuse(self, now: float, link: Link, message: bytes) -> None:
        raise ProtocolError("on purpose", "strict")


class StrictRouter(Router):
    node_types = (*NODE_TYPES, Strict)


def test_an_error_of_an_answered_kind_is_answered_and_one_of_another_only_counted() -> None:
    net = Network(engine=StrictRouter)
    api = net.process("api")
    assert [answer.kind for answer in api.send(ASKED, b"").answers] == [Kind.ERROR]
    assert api.send(TOLD, b"").answers == []
    assert net.router.refused["strict"] == 2


def test_nobody_answers_for_kinds_of_others() -> None:
    class Meddler(NodeType):
        answered = frozenset({Kind.REQUEST})

    with pytest.raises(AssertionError, match="its own kinds"):
        KindTable().register(Meddler())


def test_the_kinds_that_a_router_answers() -> None:
    assert Network().router.kinds.answered == {
        Kind.REQUEST, Kind.CAST, Kind.REGISTER, Kind.DECLARE, Kind.SUBSCRIBE, Kind.PUBLISH, Kind.INTRODUCE, Kind.QUERY,
    }  # fmt: skip
