"""Keys: what they may do, and the identities of their processes."""

from __future__ import annotations

import pytest

from rpcmq.core.router.rights import ALL_VERBS, Key, Right


def test_without_a_right_nothing_is_allowed() -> None:
    key = Key("idle", "K")
    assert all(key.right_for(verb, "", "compute") is None for verb in ALL_VERBS)


def test_the_first_right_that_covers_it_is_the_reason() -> None:
    rights = tuple(Right(frozenset(["call"]), (topics,)) for topics in ("image", "compute.#", "#"))
    assert Key("api", "K", rights).right_for("call", "", "compute.node-7") is rights[1]


@pytest.mark.parametrize("identity", ["node-7", "node-7:compute:123", "node-7/9"])
def test_identities_of_a_key_begin_with_its_name(identity: str) -> None:
    assert Key("node-7", "K").may_be(identity)
    assert not Key("node-70", "K").may_be(identity)
    assert not Key("node", "K").may_be(identity)


def test_identities_that_a_key_names_take_the_place_of_its_name() -> None:
    key = Key("host-9", "K", identities=("api", "worker-*", "[x]?"))
    assert all(map(key.may_be, ("api", "worker-1", "worker-", "[x]?")))
    assert not any(map(key.may_be, ("host-9", "host-9:a", "api2", "x", "[x]y", "x?")))
