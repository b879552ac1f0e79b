"""Dispatcher and proxies of Folsom and later, between processes: versions, namespaces, drivers with ``conf`` first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from tests.compat.across.interpreter import Interpreter, Raised

pytestmark = pytest.mark.integration

PACKAGES = {"folsom": "nova.rpc", "grizzly": "nova.openstack.common.rpc", "havana": "nova.openstack.common.rpc"}
FIRST = """
import importlib
from nova import context
rpc = importlib.import_module({0!r})
dispatcher, proxy, common, impl_kombu, impl_qpid, impl_zmq = (
    importlib.import_module({0!r} + "." + name)
    for name in ("dispatcher", "proxy", "common", "impl_kombu", "impl_qpid", "impl_zmq")
)
ctxt = context.get_admin_context()
class Base:
    RPC_API_NAMESPACE = "base"
    def ping(self, ctxt, value):
        return "base " + value
class Newer:
    RPC_API_VERSION = "2.1"
    def add(self, ctxt, a, b):
        return "2.1"
"""


class Site(NamedTuple):
    era: str
    service: Interpreter
    caller: Interpreter
    topic: str


@pytest.fixture(scope="module", params=list(PACKAGES))
def processes(program: Callable[..., Interpreter], request: pytest.FixtureRequest) -> tuple[str, list[Interpreter]]:
    first = FIRST.format(PACKAGES[request.param])
    return request.param, [each.ready() for each in [program(request.param, first) for _ in range(2)]]


@pytest.fixture
def site(processes: tuple[str, list[Interpreter]], topic: str) -> Iterator[Site]:
    """The manager, of version 1.2, and beside it something newer and something in a namespace."""
    era, (service, caller) = processes
    code = """
    conn = rpc.create_connection(new=True)
    conn.create_consumer(topic, dispatcher.RpcDispatcher([manager, Newer(), Base()]))
    conn.consume_in_thread()
    """
    service.run(code, topic=topic)
    caller.run("api = proxy.RpcProxy(topic, '1.0')", topic=topic)
    yield Site(era, service, caller, topic)
    service.run("conn.close(); manager.take()")


def test_a_proxy_calls(site):
    assert site.caller.run("api.call(ctxt, api.make_msg('add', a=1, b=2), timeout=10)") == 3
    assert site.caller.run("list(api.multicall(ctxt, api.make_msg('count', n=3)))") == [0, 1, 2]
    site.caller.run("api.cast(ctxt, api.make_msg('note', value='cast'))")
    site.service.until("manager.seen", ["cast"])


def test_a_proxy_names_a_topic(site):
    code = "proxy.RpcProxy('elsewhere', '1.0').call(ctxt, api.make_msg('add', a=1, b=2), topic=topic, timeout=10)"
    assert site.caller.run(code, topic=site.topic) == 3


@pytest.mark.parametrize(("version", "result"), [(None, 3), ("1.0", 3), ("1.2", 3), ("2.0", "2.1"), ("2.1", "2.1")])
def test_the_first_object_with_the_version_serves(site, version, result):
    code = "api.call(ctxt, api.make_msg('add', a=1, b=2), version=version, timeout=10)"
    assert site.caller.run(code, version=version) == result


@pytest.mark.parametrize("version", ["1.3", "2.2", "3.0"])
def test_a_version_that_nobody_serves(site, version):
    with pytest.raises(Raised, match=rf"UnsupportedRpcVersion|{version}") as raised:
        site.caller.run("api.call(ctxt, api.make_msg('add', a=1, b=2), version=version, timeout=10)", version=version)
    assert raised.value.attributes["exc_type"] == "UnsupportedRpcVersion"


def test_a_method_that_nobody_has(site):
    with pytest.raises(Raised) as raised:
        site.caller.run("api.call(ctxt, api.make_msg('no_such'), timeout=10)")
    error = raised.value
    if site.era == "folsom":
        assert error.attributes["exc_type"] == "UnsupportedRpcVersion"
    else:
        assert error.kind == "AttributeError" and "no_such" in error.text


def test_a_namespace(site):
    if site.era != "havana":
        assert "namespace" not in site.caller.run("api.make_msg('add', a=1)")
        return
    assert site.caller.run("api.make_msg('add', a=1)") == {"method": "add", "namespace": None, "args": {"a": 1}}
    code = "api.call(ctxt, api.make_namespaced_msg('ping', namespace, value='x'), timeout=10)"
    assert site.caller.run(code, namespace="base") == "base x"
    with pytest.raises(Raised):
        site.caller.run(code, namespace=None)


def test_timeout_of_a_proxys_call(site):
    with pytest.raises(Raised) as raised:
        site.caller.run("api.call(ctxt, api.make_msg('wait', gate='g'), timeout=0.1)")
    assert raised.value.kind == "Timeout"
    if site.era == "havana":
        assert (raised.value.attributes["topic"], raised.value.attributes["method"]) == (site.topic, "wait")
    site.service.run("manager.gate('g').set()")


@pytest.mark.parametrize("driver", ["impl_kombu", "impl_qpid", "impl_zmq"])
def test_a_driver_takes_the_configuration_first(site, driver):
    conf = "from nova.openstack.common import cfg" if site.era == "folsom" else "from oslo.config import cfg"
    site.caller.run(conf)
    names = {"topic": site.topic, "add": {"method": "add", "args": {"a": 1, "b": 2}}}
    assert site.caller.run(f"{driver}.call(cfg.CONF, ctxt, topic, add, 10)", **names) == 3
    names["count"] = {"method": "count", "args": {"n": 2}}
    assert site.caller.run(f"list({driver}.multicall(cfg.CONF, ctxt, topic, count, 10))", **names) == [0, 1]
    names["note"] = {"method": "note", "args": {"value": driver}}
    site.caller.run(f"{driver}.cast(cfg.CONF, ctxt, topic, note)", **names)
    site.service.until("manager.seen", [driver])
    # And as it was before.
    assert site.caller.run(f"{driver}.call(ctxt, topic, add, 10)", **names) == 3
    with pytest.raises(Raised) as raised:
        site.caller.run(f"{driver}.call(cfg.CONF, ctxt, topic + 'x', add, 0.1)", **names)
    assert raised.value.kind == "Timeout"
    assert site.caller.run(f"{driver}.cleanup()") is None


def test_what_a_later_jsonutils_converts_is_sent(site):
    import_it = "import datetime, itertools; when = datetime.datetime(2012, 9, 27, 1, 2, 3)"
    site.caller.run(import_it)
    call = "api.call(ctxt, api.make_msg('echo', value={}), timeout=10)"
    assert site.caller.run(call.format("when")) == "2012-09-27T01:02:03.000000"
    assert sorted(site.caller.run(call.format("{'a', 'b'}"))) == ["a", "b"]
