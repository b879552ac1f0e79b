"""The driver as oslo.messaging finds and makes it; options and urls; its imports; one connection for a process."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import oslo_messaging
import pytest
from oslo_config import cfg
from oslo_messaging import InvalidTransportURL

import rpcmq_oslo
from rpcmq_oslo import connections
from rpcmq_oslo.driver import RpcmqDriver
from rpcmq_oslo.router_urls import router_urls

Make = Callable[..., Any]
#: The modules of rpcmq that the driver may import: the interface for adapters.
PUBLIC = {
    "rpcmq", "rpcmq.errors", "rpcmq.threads", "rpcmq.adapters.calling", "rpcmq.adapters.serving",
    "rpcmq.adapters.untrusted_values",
}  # fmt: skip


def test_oslo_messaging_loads_the_driver_by_its_scheme(conf: cfg.ConfigOpts) -> None:
    transport = oslo_messaging.get_rpc_transport(conf, "rpcmq://127.0.0.1:1/")
    assert type(transport._driver) is RpcmqDriver
    transport._require_driver_features(requeue=True)
    transport.cleanup()
    transport.cleanup()


def test_the_options_are_listed_for_the_sample_file() -> None:
    (found,) = entry_points(group="oslo.config.opts", name="rpcmq_oslo")
    ((group, options),) = found.load()()
    assert (group, [option.name for option in options]) == ("oslo_messaging_rpcmq", ["key_file"])


def test_the_query_of_the_url_comes_before_the_configuration(conf: cfg.ConfigOpts, tmp_path: Path) -> None:
    driver = oslo_messaging.get_rpc_transport(conf, "rpcmq://127.0.0.1:1/?key_file=/from/url")._driver
    assert driver._key_file == "/from/url"
    conf.set_override("key_file", str(tmp_path / "absent"), "oslo_messaging_rpcmq")
    transport = oslo_messaging.get_rpc_transport(conf, "rpcmq://127.0.0.1:1/")
    with pytest.raises(InvalidTransportURL, match="absent"):
        transport._send(oslo_messaging.Target(topic="t"), {}, {"method": "m"}, retry=0)


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("rpcmq://", "names no router: write rpcmq://host:7700/"),
        ("rpcmq://host/?colour=red", r"no such option colour.*options are: key_file"),
        ("rpcmq://alice:secret@host:1/", r"'host': rpcmq knows processes by their keys"),
        ("rpcmq://host,alice:secret@:1/?colour=red", r"rpcmq knows processes by their keys"),
        ("rpcmq://:1/", "has no name"),
        ("rpcmq+tls://alice:secret@host/", r"scheme 'rpcmq\+tls'.*write rpcmq://host:7700/.*encrypted where key_file"),
        ("rpcmq://host:99999/", "port 99999 of host 'host'.*1 to 65535"),
        ("rpcmq://host:0/", "port 0 of host 'host'.*1 to 65535"),
        ("rpcmq://host/?key_file=/a&key_file=/b", "key_file = '/a,/b' in the transport url is given more than once"),
    ],
)
def test_a_wrong_url_is_refused_with_the_reason(conf: cfg.ConfigOpts, url: str, text: str) -> None:
    with pytest.raises(InvalidTransportURL, match=text) as caught:
        oslo_messaging.get_rpc_transport(conf, url)
    assert "secret" not in f"{caught.value} {caught.value.url}"


def test_hosts_are_routers_in_their_order_each_once(conf: cfg.ConfigOpts) -> None:
    url = oslo_messaging.TransportURL.parse(conf, "rpcmq://one:1,two,one:1,[::1]:3,two:7700/")
    assert router_urls(url) == ("tcp://one:1", "tcp://two:7700", "tcp://[::1]:3")


def test_one_connection_for_all_transports_and_listeners(transport: Make, serve: Make, router: Any) -> None:
    class Endpoint:
        def who(self, ctxt: Any) -> str:
            return "me"

    transports = [transport(), transport(), transport(router.url + "cell-1")]
    for number, each in enumerate(transports):
        serve(Endpoint(), server=f"node-{number}", over=each)
        target = oslo_messaging.Target(topic="compute", server=f"node-{number}")
        assert oslo_messaging.get_rpc_client(each, target).call({}, "who") == "me"
    assert len({each._driver._connection.client.identity for each in transports}) == 1
    assert len(connections._clients) == 1


def test_the_last_user_closes_the_connection_and_it_may_be_used_again(conf: cfg.ConfigOpts, router: Any) -> None:
    one, two = (oslo_messaging.get_rpc_transport(conf, router.url) for _ in range(2))
    target = oslo_messaging.Target(topic="nobody-at-all", fanout=True)
    for transport in (one, two):
        transport._send(target, {}, {"method": "m"}, retry=30)
    shared = one._driver._connection.client
    one.cleanup()
    assert not shared.closed
    two.cleanup()
    assert shared.closed and not connections._clients
    two._send(target, {}, {"method": "m"}, retry=30)
    assert connections._clients
    two.cleanup()


def test_only_the_interface_for_adapters_is_imported() -> None:
    found = set()
    for path in Path(rpcmq_oslo.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.ImportFrom(module=str(module)):
                    found.add(module)
                case ast.Import(names=names):
                    found |= {name.name for name in names}
    assert {name for name in found if re.match(r"rpcmq(\.|$)", name)} <= PUBLIC
    assert not {name for name in found if re.match(r"(gevent|eventlet|greenlet)(\.|$)", name)}


def test_neither_gevent_nor_eventlet_is_imported(router: Any) -> None:
    """By what the driver itself does: oslo.messaging 17 imports eventlet where it is installed."""
    program = (
        "import sys; sys.modules['gevent'] = None\n"
        "import oslo_messaging; from oslo_config import cfg\n"
        "before = {'eventlet', 'greenlet'} & set(sys.modules)\n"
        f"transport = oslo_messaging.get_rpc_transport(cfg.CONF, {router.url!r})\n"
        "transport._send(oslo_messaging.Target(topic='nobody', fanout=True), {}, {'method': 'm'})\n"
        "transport.cleanup()\n"
        "print({'eventlet', 'greenlet'} & set(sys.modules) == before)\n"
    )
    command = [sys.executable, "-W", "ignore", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.returncode) == ("True\n", 0), done.stderr
