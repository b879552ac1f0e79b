"""The two proxy modules, and Havana's clients on them."""

from __future__ import annotations

from typing import Any

import pytest

CTXT = object()
SERVER = {"hostname": "cell"}
VERBS = ["call", "multicall", "cast", "fanout_cast", "cast_to_server", "fanout_cast_to_server"]


class Front:
    """Stands in for the functions of the front module, by attribute, as tests of Nova did."""

    def __init__(self, load: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: list[tuple[Any, ...]] = []
        self.result: Any = None
        self.error: Exception | None = None
        rpc = load("nova.rpc")
        for verb in VERBS:
            monkeypatch.setattr(rpc, verb, self._make(verb), raising=False)

    def _make(self, verb: str) -> Any:
        def send(*args: Any) -> Any:
            self.sent.append((verb, *args))
            if self.error:
                raise self.error
            return self.result

        return send


def expected(verb: str, topic: str, msg: dict[str, Any], timeout: Any = None) -> tuple[Any, ...]:
    if verb.endswith("call"):
        return (verb, CTXT, topic, msg, timeout)
    return (verb, CTXT, SERVER, topic, msg) if verb.endswith("server") else (verb, CTXT, topic, msg)


def send(proxy: Any, verb: str, msg: Any, **kwargs: Any) -> Any:
    server = (SERVER,) if verb.endswith("server") else ()
    return getattr(proxy, verb)(CTXT, *server, msg, **kwargs)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("module", ["nova.rpc.proxy", "nova.openstack.common.rpc.proxy"])
def test_everything_goes_through_the_front_module(at, monkeypatch, module, verb):
    load = at(None)
    proxy = load(module).RpcProxy("compute", "1.2")
    # Replaced after the proxy was made and imported.
    front = Front(load, monkeypatch)
    front.result = "result"
    msg = proxy.make_msg("reboot", host="a")
    assert send(proxy, verb, msg) == ("result" if verb.endswith("call") else None)
    assert front.sent == [expected(verb, "compute", msg | {"version": "1.2"})]
    assert msg["args"] == {"host": "a"}
    send(proxy, verb, msg, topic="compute.a", version="1.7")
    assert front.sent[1] == expected(verb, "compute.a", msg | {"version": "1.7"})


@pytest.mark.parametrize("verb", ["call", "multicall"])
@pytest.mark.parametrize("module", ["nova.rpc.proxy", "nova.openstack.common.rpc.proxy"])
def test_timeout_is_the_fourth_argument(at, monkeypatch, module, verb):
    load = at(None)
    front = Front(load, monkeypatch)
    send(load(module).RpcProxy("compute", "1.0"), verb, {"method": "x", "args": {}}, timeout=42)
    assert front.sent[0][4] == 42


def test_messages_differ(at):
    load = at(None)
    plain = load("nova.rpc.proxy").RpcProxy
    assert plain.make_msg("m", a=1) == {"method": "m", "args": {"a": 1}}
    havana = load("nova.openstack.common.rpc.proxy").RpcProxy
    assert havana("t", "1.0").make_msg("m", a=1) == {"method": "m", "namespace": None, "args": {"a": 1}}
    assert havana.make_namespaced_msg("m", "base", a=1) == {"method": "m", "namespace": "base", "args": {"a": 1}}

    class Named(havana):  # type: ignore[misc, valid-type]
        RPC_API_NAMESPACE = "base"

    assert Named("t", "1.0").make_msg("m")["namespace"] == "base"


@pytest.mark.parametrize("era", ["folsom", "grizzly"])
def test_there_is_one_proxy_in_folsom_and_grizzly(at, era):
    load = at(era)
    assert load("nova.openstack.common.rpc.proxy").RpcProxy.make_msg("m") == {"method": "m", "args": {}}


@pytest.mark.parametrize("verb", VERBS)
def test_version_cap(at, monkeypatch, verb):
    load = at("havana")
    front = Front(load, monkeypatch)
    proxy = load("nova.openstack.common.rpc.proxy").RpcProxy("compute", "1.0", version_cap="1.5")
    for version, fits in (("1.5", True), ("1.6", False), ("2.0", False), (None, True)):
        assert proxy.can_send_version(version or "1.0") is fits
        if fits:
            send(proxy, verb, proxy.make_msg("m"), version=version)
        else:
            with pytest.raises(load("nova.rpc.common").RpcVersionCapError, match=r"1\.5"):
                send(proxy, verb, proxy.make_msg("m"), version=version)
    assert len(front.sent) == 2
    assert load("nova.openstack.common.rpc.proxy").RpcProxy("compute", "1.0").can_send_version("9.9")


@pytest.mark.parametrize("verb", ["call", "multicall"])
def test_timeouts_name_topic_and_method(at, monkeypatch, verb):
    load = at("havana")
    front = Front(load, monkeypatch)
    timeout = load("nova.rpc.common").Timeout
    front.error = timeout("60 seconds")
    proxy = load("nova.openstack.common.rpc.proxy").RpcProxy("compute", "1.0")
    with pytest.raises(timeout) as caught:
        send(proxy, verb, proxy.make_msg("reboot"), topic="compute.a")
    assert (caught.value.info, caught.value.topic, caught.value.method) == ("60 seconds", "compute.a", "reboot")


@pytest.mark.parametrize("verb", VERBS)
def test_serializer(at, monkeypatch, verb):
    class Marking:
        def serialize_entity(self, context: Any, entity: Any) -> Any:
            return f"<{entity}>"

        def deserialize_entity(self, context: Any, entity: Any) -> Any:
            return f"[{entity}]"

    load = at("havana")
    front = Front(load, monkeypatch)
    front.result = "result"
    proxy = load("nova.openstack.common.rpc.proxy").RpcProxy("compute", "1.0", serializer=Marking())
    assert send(proxy, verb, proxy.make_msg("m", a="x")) == ("[result]" if verb.endswith("call") else None)
    [sent] = front.sent
    assert next(each for each in sent if isinstance(each, dict) and "args" in each)["args"] == {"a": "<x>"}


# --- nova.rpcclient, nova.baserpc ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "verb", "topic", "version"),
    [
        ({}, "call", "compute", "1.0"),
        ({"server": "a"}, "call", "compute.a", "1.0"),
        ({"topic": "cells", "server": "a"}, "call", "cells.a", "1.0"),
        ({"version": "1.4"}, "call", "compute", "1.4"),
        ({"server": None}, "cast", "compute", "1.0"),
        ({"fanout": True}, "fanout_cast", "compute", "1.0"),
        ({"topic": "cells"}, "cast", "cells", "1.0"),
    ],
)
def test_prepared_options(at, monkeypatch, options, verb, topic, version):
    load = at("havana")
    front = Front(load, monkeypatch)
    front.result = "result"
    client = load("nova.rpcclient").RpcProxy("compute", "1.0").get_client(namespace="base")
    msg = {"method": "m", "namespace": "base", "args": {"a": 1}, "version": version}
    prepared = client.prepare(**options)
    if verb == "call":
        assert prepared.prepare(timeout=7).call(CTXT, "m", a=1) == "result"
        assert front.sent == [expected("call", topic, msg, 7)]
    else:
        prepared.cast(CTXT, "m", a=1)
        assert front.sent == [expected(verb, topic, msg)]
    # The first client keeps what it had.
    client.cast(CTXT, "m")
    assert front.sent[1][:3] == ("cast", CTXT, "compute")


@pytest.mark.parametrize(("fanout", "verb"), [(True, "fanout_cast_to_server"), (False, "cast_to_server")])
def test_client_of_another_server(at, monkeypatch, fanout, verb):
    load = at("havana")
    front = Front(load, monkeypatch)
    client = load("nova.rpcclient").RpcProxy("compute", "1.0", version_cap="1.3").get_client(server_params=SERVER)
    client.prepare(fanout=fanout).cast(CTXT, "m")
    assert front.sent[0][:4] == (verb, CTXT, SERVER, "compute")
    assert client.can_send_version("1.3") and not client.can_send_version("1.4")


def test_base_interface(at, monkeypatch):
    load = at("havana")
    baserpc = load("nova.baserpc")
    service = baserpc.BaseRPCAPI("compute", 4444)
    dispatcher = load("nova.rpc.dispatcher").RpcDispatcher([service])
    monkeypatch.setattr(
        load("nova.rpc"),
        "call",
        lambda ctxt, topic, msg, timeout: (
            (topic, timeout),
            dispatcher.dispatch(ctxt, msg["version"], msg["method"], msg["namespace"], **msg["args"]),
        ),
        raising=False,
    )
    api = baserpc.BaseAPI("compute")
    assert api.ping(CTXT, "hello", timeout=3) == (("compute", 3), {"service": "compute", "arg": "hello"})
    assert api.get_backdoor_port(CTXT, "a") == (("compute.a", None), 4444)


def test_before_havana_the_class_makes_messages_too(at):
    proxy = at(None)("nova.openstack.common.rpc.proxy").RpcProxy
    assert proxy.make_msg("method", a=1) == {"method": "method", "args": {"a": 1}}
    assert proxy("topic", "1.0").make_msg("method", a=1) == {"method": "method", "namespace": None, "args": {"a": 1}}
