"""nova.rpc.dispatcher and nova.rpc.serializer."""

from __future__ import annotations

from typing import Any

import pytest

CTXT = object()


class V1:
    def old(self, ctxt: Any, value: Any = None) -> tuple[Any, ...]:
        return "1.0", ctxt, value

    def both(self, ctxt: Any) -> str:
        return "1.0"


class V23:
    RPC_API_VERSION = "2.3"

    def new(self, ctxt: Any) -> str:
        return "2.3"

    def both(self, ctxt: Any) -> str:
        return "2.3"


class Base:
    RPC_API_VERSION = "1.1"
    RPC_API_NAMESPACE = "base"

    def both(self, ctxt: Any, namespace: Any = None) -> str:
        return f"base {namespace}"


def make(load: Any, *args: Any) -> Any:
    return load("nova.rpc.dispatcher").RpcDispatcher([V1(), V23()], *args)


@pytest.mark.parametrize(
    ("version", "method", "ran"),
    [
        ("1.0", "both", "1.0"),
        (None, "both", "1.0"),
        ("2.0", "both", "2.3"),
        ("2.3", "both", "2.3"),
        ("2.1", "new", "2.3"),
    ],
)
def test_first_object_that_fits(at, version, method, ran):
    assert make(at("folsom")).dispatch(CTXT, version, method) == ran
    assert make(at("havana")).dispatch(CTXT, version, method, None) == ran


def test_context_comes_first(at):
    assert make(at("folsom")).dispatch(CTXT, None, "old", value=3) == ("1.0", CTXT, 3)


@pytest.mark.parametrize("version", ["1.1", "2.4", "3.0"])
def test_no_such_version(at, version):
    for era in ("folsom", "havana"):
        load = at(era)
        with pytest.raises(load("nova.rpc.common").UnsupportedRpcVersion, match=version):
            make(load).dispatch(CTXT, version, "both")


@pytest.mark.parametrize(
    ("method", "version"), [("nothing", "1.0"), ("nothing", "2.1"), ("new", "1.0"), ("old", "2.0")]
)
def test_no_such_method(at, method, version):
    load = at("folsom")
    with pytest.raises(load("nova.rpc.common").UnsupportedRpcVersion):
        make(load).dispatch(CTXT, version, method)
    # 2012.2: the same code, from its new place.
    load("nova.openstack.common.rpc")
    with pytest.raises(AttributeError, match=method):
        make(load).dispatch(CTXT, version, method)
    with pytest.raises(AttributeError, match=method):
        make(at("grizzly")).dispatch(CTXT, version, method)


def test_namespaces(at):
    load = at("havana")
    dispatcher = load("nova.rpc.dispatcher").RpcDispatcher([Base(), V1()])
    assert dispatcher.dispatch(CTXT, "1.1", "both", "base") == "base None"
    assert dispatcher.dispatch(CTXT, "1.0", "both", None) == "1.0"
    with pytest.raises(load("nova.rpc.common").UnsupportedRpcVersion):
        dispatcher.dispatch(CTXT, "1.0", "both", "other")
    with pytest.raises(TypeError):
        dispatcher.dispatch(CTXT, "1.0", "both", "base", "more")


def test_namespace_is_an_argument_before_havana(at):
    dispatcher = at("folsom")("nova.rpc.dispatcher").RpcDispatcher([Base()])
    assert dispatcher.dispatch(CTXT, "1.0", "both", namespace="lan") == "base lan"


def test_serializer_gets_arguments_and_result(at):
    load = at("havana")

    class Doubling(load("nova.openstack.common.rpc.serializer").Serializer):  # type: ignore[misc]
        def serialize_entity(self, context: Any, entity: Any) -> Any:
            return ("sent", context, entity)

        def deserialize_entity(self, context: Any, entity: Any) -> Any:
            return entity * 2

    assert make(load, Doubling()).dispatch(CTXT, "1.0", "old", None, value=3) == ("sent", CTXT, ("1.0", CTXT, 6))


def test_serializer_needs_both_methods(at):
    serializer = at("havana")("nova.rpc.serializer")
    with pytest.raises(TypeError):
        serializer.Serializer()
    entity = object()
    assert serializer.NoOpSerializer().serialize_entity(CTXT, entity) is entity
    assert serializer.NoOpSerializer().deserialize_entity(CTXT, entity) is entity
