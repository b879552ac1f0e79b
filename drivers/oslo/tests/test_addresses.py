"""Names: whatever is in them, no target is given what is another's."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import oslo_messaging
import pytest
from oslo_messaging import InvalidTarget, Target

from rpcmq_oslo.addresses import Addresses

Make = Callable[..., Any]
#: Topic and server. Of the first two, as of Cinder's, the joined names are the same; so are those of others.
NAMES = [
    ("volume", "host@lvm"), ("volume.host@lvm", "host"), ("a", "b.c.d"), ("a.b", "c.d"), ("a.b.c", "d"), ("a", "b.c"),
    ("a:b", "c"), ("a%3Ab", "c"), ("a%2Eb", "c"), ("a..b", "c"), (".", "."), ("thème", "nœud.é"), ("thème.nœud", "é"),
    ("e\u0301", "n"), ("\xe9", "n"), ("主题.节点", "é"), ("#", "*"), ("a/b", "c"), ("rpcmq.work", "x"),
]  # fmt: skip


class Endpoint:
    def __init__(self, name: tuple[str, str]) -> None:
        self.name = name

    def who(self, ctxt: Any) -> Any:
        return self.name


def test_no_two_targets_have_the_same_address() -> None:
    addresses = Addresses("", "openstack")
    targets = [Target(topic=topic, server=server) for topic, server in NAMES]
    targets += [Target(topic=topic) for topic in {topic for topic, _ in NAMES}]
    shown = [str(addresses.of(target)) for target in targets]
    # The text is what an alias of rpcmq is: topic, dot, server.
    assert [(one, two) for one, two in combinations(shown, 2) if one == two] == []


@pytest.mark.parametrize("virtual_hosts", [("", "a"), ("a", "a/b"), ("a", "a%2Fb"), ("a", "b")])
def test_no_two_virtual_hosts_and_exchanges_are_the_same(virtual_hosts: tuple[str, str]) -> None:
    exchanges = ("", "a", "b", "a/b", "/a", "b/a")
    made = [str(Addresses(host, None).of(Target(topic="t", exchange=e))) for host in virtual_hosts for e in exchanges]
    assert len(set(made)) == len(made)


def test_servers_whose_names_have_dots_and_unicode_get_their_own_messages(serve: Make, client: Make) -> None:
    for topic, server in NAMES:
        serve(Endpoint((topic, server)), topic=topic, server=server)
    for topic, server in NAMES:
        assert client(topic, target={"server": server}, timeout=30).call({}, "who") == [topic, server]
        servers = {each for name, each in NAMES if name == topic}
        found = {tuple(client(topic, timeout=30).call({}, "who")) for _ in range(4)}
        assert found <= {(topic, each) for each in servers}


@pytest.mark.parametrize("name", ["x" * 256, "a\x00b", "a\nb", "\ud800"])
def test_a_name_that_cannot_be_sent_is_an_invalid_target(client: Make, name: str) -> None:
    for target in ({"topic": name}, {"topic": "t", "target": {"server": name}}):
        with pytest.raises(InvalidTarget):
            client(**target, timeout=5).call({}, "who")


@pytest.mark.parametrize("field", ["topic", "exchange", "server"])
def test_a_name_that_is_no_text_is_an_invalid_target(client: Make, field: str) -> None:
    names: dict[str, Any] = {"topic": "t"} | {field: 7}
    with pytest.raises(InvalidTarget, match=f"{field} must be a str, not int"):
        client(names.pop("topic"), target=names, timeout=5).call({}, "who")


def test_undeliverable_names_the_topic_as_it_was_given(client: Make) -> None:
    options = oslo_messaging.TransportOptions(at_least_once=True)
    with pytest.raises(oslo_messaging.MessageUndeliverable) as caught:
        client("no.body", target={"server": "node.1"}, timeout=30, transport_options=options).call({}, "who")
    assert caught.value.routing_key == "no.body.node.1"
