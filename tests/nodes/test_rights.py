"""With keys, nobody may ask a node or its operators' controls without the right to."""

from __future__ import annotations

from typing import Any

import pytest

from rpcmq.core.router.rights import ALL_VERBS, Key, Right
from rpcmq.errors import Outcome
from rpcmq.testing.network import Network
from rpcmq.testing.nodes import engine_with
from rpcmq.testing.process import Process
from rpcmq.wire import Kind, json_bytes
from tests.nodes import hostile
from tests.nodes.hostile import KIND


def process(node: Any, *rights: Right, rate: float | None = None) -> tuple[Network, Process]:
    net = Network(engine=engine_with(node))
    net.router.set_authorized_keys(net.now, [Key("ops", "K" * 40, rights, ("*",), messages_per_second=rate)])
    return net, net.process("ops", user="K" * 40)


def outcome(api: Process, kind: int, payload: bytes = b"") -> Any:
    (answer,) = api.send(kind, payload, format=1).answers
    return answer.kind if answer.kind is Kind.ANSWER else answer.outcome


def control(name: str) -> bytes:
    return json_bytes({"what": name})


ADMIN = Right(frozenset({"admin"}), ("obedient.rows", "control.obedient.*"))


@pytest.mark.parametrize(
    ("rights", "allowed"),
    [
        ((), False),
        ((Right(frozenset({"call", "admin", "serve"}), ("#",), ("*",)),), False),
        ((Right(frozenset(ALL_VERBS) - {"node"}, ("#",), ("*",)),), False),
        ((Right(frozenset({"node"}), ("other.#",)),), False),
        ((Right(frozenset({"node"}), ("obedient.ask",)),), True),
        ((Right(frozenset({"node"}), ("obedient.#",)),), True),
        ((Right(frozenset(ALL_VERBS), ("#",), ("*",)),), True),
    ],
)
def test_a_kind_needs_the_right_node_on_its_name(rights: tuple[Right, ...], allowed: bool) -> None:
    _, api = process(hostile.Obedient, *rights)
    assert outcome(api, KIND) == (Kind.ANSWER if allowed else Outcome.DENIED)


def test_controls_and_views_need_the_right_admin_on_theirs() -> None:
    _, api = process(hostile.Obedient, Right(frozenset({"node"}), ("#",)))
    for name in ("control.obedient.do", "control.node.restart", "obedient.rows", "nodes"):
        assert outcome(api, Kind.QUERY, control(name)) == Outcome.DENIED
    _, api = process(hostile.Obedient, ADMIN)
    for name in ("control.obedient.do", "obedient.rows"):
        assert outcome(api, Kind.QUERY, control(name)) == Kind.ANSWER
    assert outcome(api, Kind.QUERY, control("control.node.restart")) == Outcome.DENIED


def test_a_kind_whose_right_the_node_checks_is_denied_with_the_name() -> None:
    _, api = process(hostile.Checks, Right(frozenset({"node"}), ("checks.compute.#",)))
    assert outcome(api, KIND, b"compute.node-7") == Kind.ANSWER
    (answer,) = api.send(KIND, b"volume").answers
    assert answer.outcome is Outcome.DENIED
    assert answer.body["text"] == "key 'ops' has no right to node 'checks.volume'"


def test_asks_count_towards_the_rate_of_a_key() -> None:
    _, api = process(hostile.Obedient, Right(frozenset({"node"}), ("#",)), rate=3.0)
    assert [outcome(api, KIND) for _ in range(4)] == [Kind.ANSWER] * 3 + [Outcome.OVERLOADED]
