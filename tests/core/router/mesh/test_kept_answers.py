"""Consumers are told which of their answers have arrived, and need not be kept any more."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from rpcmq.core.router.settings import Settings
from rpcmq.testing.mesh_network import MeshNetwork, Process
from rpcmq.wire import Kind
from rpcmq.wire.adoption import taken_keys


class Answering:
    """A caller at router a, and consumers of a topic each, all at router b or all at a."""

    def __init__(self, router: str, names: Iterable[str]) -> None:
        self.net = MeshNetwork(("a", "b"), Settings(recovery_seconds=0.0))
        self.net.advance(2.0)
        self.api = self.net.process("api", router="a")
        self.nodes = {name: self.net.process(name, router=router) for name in names}
        for name, node in self.nodes.items():
            node.register(name, credit=4)
        self.net.advance(1.0)

    def answer(self, *names: str) -> list[bytes]:
        """Have these answer a call each, in this order; return the keys."""
        keys = []
        for name in names:
            self.api.request(name, "reboot")
            self.net.advance(0.1)
            node = self.nodes[name]
            request: Any = node.take(Kind.REQUEST)
            node.reply(request, b"done")
            self.net.advance(0.1)
            keys.append(bytes(request.key))
        return keys

    def told(self) -> dict[str, list[bytes]]:
        """The keys of which each consumer was told once the caller has acknowledged all that it has."""
        self.net.advance(10.0)
        return {name: list(keys_told_to(node)) for name, node in self.nodes.items()}


def keys_told_to(node: Process) -> Iterable[bytes]:
    for message in node.received:
        if message.kind == Kind.TAKEN:
            yield from taken_keys(message.message)


@pytest.mark.parametrize("router", ["a", "b"])
def test_each_consumer_is_told_of_its_own_answers(router: str) -> None:
    mesh = Answering(router, ("one", "two"))
    first, second, third, fourth = mesh.answer("one", "two", "two", "one")
    assert mesh.told() == {"one": [first, fourth], "two": [second, third]}
    fifth, sixth = mesh.answer("two", "one")
    assert mesh.told() == {"one": [first, fourth, sixth], "two": [second, third, fifth]}


@pytest.mark.parametrize("router", ["a", "b"])
def test_who_answers_in_the_place_of_one_that_is_gone_is_told_of_its_answers(router: str) -> None:
    mesh = Answering(router, ("one", "two"))
    first, second = mesh.answer("one", "two")
    mesh.nodes["one"].stop()
    mesh.net.advance(1.0)
    third, fourth = mesh.answer("two", "two")
    assert mesh.told()["two"] == [second, third, fourth]
    (fifth,) = mesh.answer("two")
    assert mesh.told()["two"] == [second, third, fourth, fifth] and first not in mesh.told()["two"]
