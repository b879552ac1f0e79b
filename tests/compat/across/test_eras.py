"""The features of every era, used as its services and callers were written: two services, one caller."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest

from rpcmq.testing import eventually
from tests.compat.across.interpreter import Interpreter, Raised

pytestmark = pytest.mark.integration

#: era -> the ways in which its services consume.
STYLES = [
    ("cactus", "cactus"),
    ("diablo", "diablo_m3"),
    ("diablo", "diablo_m4"),
    ("diablo", "diablo_m4_attached"),
    ("diablo", "essex"),
    ("essex", "essex"),
    ("folsom", "folsom"),
    ("folsom", "common"),
    ("grizzly", "common"),
    ("havana", "common"),
]
COMMON = "from nova.openstack.common import rpc; from nova.openstack.common.rpc import common as rpc_common"
LEGACY = "from nova import rpc; from nova.rpc import common as rpc_common"
CALLER = """
from nova import context
ctxt = context.get_admin_context()

def call(rpc_method, topic, timeout=None, **args):
    # An era without timeouts is given none.
    return rpc.call(ctxt, topic, {"method": rpc_method, "args": args}, *([timeout] if timeout else []))

def multicall(method, topic, **args):
    return list(rpc.multicall(ctxt, topic, {"method": method, "args": args}))

def cast(method, topic, **args):
    return rpc.cast(ctxt, topic, {"method": method, "args": args})

def fanout_cast(method, topic, **args):
    return rpc.fanout_cast(ctxt, topic, {"method": method, "args": args})
"""


class Site(NamedTuple):
    """Two services on ``topic``, and who calls them."""

    era: str
    topic: str
    hosts: dict[str, Interpreter]
    caller: Interpreter

    def taken(self) -> dict[str, list[Any]]:
        """The notes of each host since the last time."""
        return {host: service.run("manager.take()") for host, service in self.hosts.items()}

    def since(self, era: str) -> bool:
        """Return whether the era is this one or later."""
        eras = ["cactus", "diablo", "essex", "folsom", "grizzly", "havana"]
        return eras.index(self.era) >= eras.index(era)


def caller(era: str, style: str) -> str:
    """First code of a caller."""
    return (COMMON if style == "common" else LEGACY) + CALLER


@pytest.fixture(scope="module", params=STYLES, ids=lambda style: "-".join(dict.fromkeys(style)))
def site(router: str, request: pytest.FixtureRequest) -> Iterator[Site]:
    era, style = request.param
    topic = f"compute-{era}-{style}"
    with ExitStack() as stack:
        serve = "import services; stop = services.{}({!r}, {!r}, manager)"
        hosts = {
            host: stack.enter_context(Interpreter(router, era, serve.format(style, topic, host)))
            for host in ("h1", "h2")
        }
        calling = stack.enter_context(Interpreter(router, era, caller(era, style)))
        for each in (*hosts.values(), calling):
            each.ready()
        yield Site(era, topic, hosts, calling)
        for service in hosts.values():
            service.run("stop()")


def test_the_era_is_the_one_that_is_meant(site):
    assert {each.run("compat.nova.era()") for each in (*site.hosts.values(), site.caller)} == {site.era}


def test_a_call_gives_the_result(site):
    assert site.caller.run("call('add', topic, a=2, b=3)", topic=site.topic) == 5


def test_a_call_of_none_gives_none(site):
    assert site.caller.run("call('note', topic, value='x')", topic=site.topic) is None
    assert sorted(site.taken().values()) == [[], ["x"]]


def test_calls_are_shared_by_the_hosts(site):
    site.caller.run("[call('note', topic, value=n) for n in range(6)]", topic=site.topic)
    taken = site.taken()
    assert sorted(taken["h1"] + taken["h2"]) == [*range(6)]
    assert {host: len(seen) for host, seen in taken.items()} == {"h1": 3, "h2": 3}


def test_casts_are_shared_by_the_hosts_and_give_nothing(site):
    assert site.caller.run("[cast('note', topic, value=n) for n in range(6)]", topic=site.topic) == [None] * 6
    seen: dict[str, list[int]] = {"h1": [], "h2": []}

    def all_seen() -> bool:
        for host, values in site.taken().items():
            seen[host] += values
        return sorted(seen["h1"] + seen["h2"]) == [*range(6)]

    eventually(all_seen)
    assert {host: len(values) for host, values in seen.items()} == {"h1": 3, "h2": 3}


def test_a_host_is_reached_by_its_topic(site):
    for host in ("h1", "h2"):
        site.caller.run("[call('note', topic, value=n) for n in range(3)]", topic=f"{site.topic}.{host}")
        assert site.taken() == {"h1": [], "h2": []} | {host: [0, 1, 2]}


def test_a_fanout_reaches_each_host_once(site):
    assert site.caller.run("fanout_cast('note', topic, value='all')", topic=site.topic) is None
    for service in site.hosts.values():
        service.until("manager.seen", ["all"])
    # Later than any second copy of it.
    site.caller.run("fanout_cast('note', topic, value='end')", topic=site.topic)
    for service in site.hosts.values():
        service.until("manager.seen", ["all", "end"])
    site.taken()


def test_the_context_arrives_as_it_was_sent(site):
    sent, received = site.caller.run("ctxt.to_dict(), call('who', topic)", topic=site.topic)
    assert received == sent
    assert sent["is_admin"] is True and sent["request_id"]


def test_a_call_gives_the_last_item_of_a_generator(site):
    assert site.caller.run("call('count', topic, n=4)", topic=site.topic) == 3
    assert site.caller.run("call('count', topic, n=0)", topic=site.topic) is None


def test_a_multicall_gives_the_items_in_order(site):
    assert site.caller.run("multicall('count', topic, n=5)", topic=site.topic) == [0, 1, 2, 3, 4]
    assert site.caller.run("multicall('count', topic, n=0)", topic=site.topic) == []
    assert site.caller.run("multicall('add', topic, a=1, b=1)", topic=site.topic) == [2]


def test_replies_in_the_handler(site):
    assert site.caller.run("multicall('reply', topic, values=[7, 8, 9])", topic=site.topic) == [7, 8, 9]
    assert site.caller.run("call('reply', topic, values=[7, 8, 9])", topic=site.topic) == 9
    said = site.caller.run("multicall('reply_and_return', topic, values=[7, 8, 9])", topic=site.topic)
    assert said == [7, 8, 9]


def test_what_a_method_raises_is_raised_at_the_caller(site):
    with pytest.raises(Raised) as raised:
        site.caller.run("call('fail', topic, text='42')", topic=site.topic)
    if site.era in ("grizzly", "havana"):
        # Its allow-list has the built-in exceptions, which arrive as themselves.
        assert raised.value.kind == "ValueError"
        assert raised.value.text.startswith("42\nTraceback") and "in fail" in raised.value.text
    else:
        assert raised.value.kind == "RemoteError"
        assert raised.value.attributes["exc_type"] == "ValueError"
        assert int(raised.value.attributes["value"]) == 42
        assert "in fail" in "".join(raised.value.attributes["traceback"])
        assert "ValueError" in raised.value.text and "42" in raised.value.text


def test_an_unknown_method_is_an_error_at_the_caller(site):
    with pytest.raises(Raised) as raised:
        site.caller.run("call('no_such', topic)", topic=site.topic)
    if site.topic == "compute-folsom-folsom":
        # The last of nova.rpc; nova.openstack.common.rpc knows the difference.
        assert raised.value.attributes["exc_type"] == "UnsupportedRpcVersion"
    else:
        assert "no_such" in raised.value.text
    if not site.since("folsom"):
        assert raised.value.attributes["exc_type"] == "AttributeError"
    assert site.caller.run("call('add', topic, a=2, b=3)", topic=site.topic) == 5


def test_a_call_without_reply_times_out_and_a_late_reply_is_dropped(site):
    if not site.since("essex"):
        pytest.skip("there were no timeouts yet")
    host = f"{site.topic}.h1"
    with pytest.raises(Raised) as raised:
        site.caller.run("call('wait', topic, timeout=0.2, gate='late', value='late')", topic=host)
    assert raised.value.kinds[0].endswith("rpc.common.Timeout")
    waiting = site.caller.start("call('wait', topic, gate='later', value='in time')", topic=host)
    site.hosts["h1"].until("manager.started[-2:]", ["late", "later"])
    site.hosts["h1"].run("manager.gate('late').set()")
    site.hosts["h1"].until("manager.seen", [("passed", "late")])
    site.hosts["h1"].run("manager.gate('later').set()")
    assert site.caller.result(waiting) == "in time"
    site.taken()


def test_each_message_has_a_green_thread_of_its_own(site):
    """One that waits for another of the same topic and host."""
    host = f"{site.topic}.h2"
    waiting = site.caller.start("call('wait', topic, gate='g', value='done')", topic=host)
    site.hosts["h2"].until("manager.started", ["g"])
    site.caller.run("call('open', topic, gate='g')", topic=host)
    assert site.caller.result(waiting) == "done"
    site.taken()


def test_a_handler_may_call_its_own_topic(site):
    host = f"{site.topic}.h1"
    code = "call('ask', topic, where=topic, what='add', args={'a': 20, 'b': 22})"
    assert site.caller.run(code, topic=host) == 42
