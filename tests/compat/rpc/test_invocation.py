"""nova.rpc.invocation: the form in which a proxy is called."""

from __future__ import annotations

from typing import Any

import pytest

import compat.nova

CTXT = object()


class Manager:
    """A proxy of before Folsom; its context is not its first argument."""

    def echo(self, value: Any, context: Any = None) -> tuple[Any, ...]:
        return "keyword", context, value


class Folsom:
    def dispatch(self, ctxt: Any, version: Any, method: str, **args: Any) -> tuple[Any, ...]:
        return "dispatch", ctxt, version, method, args


class Havana:
    def dispatch(self, ctxt: Any, version: Any, method: str, namespace: Any, **args: Any) -> tuple[Any, ...]:
        return "namespace", ctxt, version, method, namespace, args


class Service:
    """Forwards to its manager, as nova.service does."""

    manager = Manager()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.manager, name)


def run(load: Any, proxy: Any, **message: Any) -> Any:
    return load("nova.rpc.invocation").handler_of(proxy, message)(CTXT)


@pytest.mark.parametrize("proxy", [Manager(), Service()])
def test_context_is_a_keyword_to_essex(at, proxy):
    for era in compat.nova.ERAS[:3]:
        assert run(at(era), proxy, method="echo", args={"value": 1}) == ("keyword", CTXT, 1)


def test_dispatch_takes_version_and_method(at):
    for era in compat.nova.ERAS[3:]:
        message = {"method": "echo", "args": {"value": 1}, "version": "1.3"}
        assert run(at(era), Folsom(), **message) == ("dispatch", CTXT, "1.3", "echo", {"value": 1})
        assert run(at(era), Folsom(), method="echo") == ("dispatch", CTXT, None, "echo", {})


@pytest.mark.parametrize("namespace", ["base", None])
def test_dispatch_takes_the_namespace_if_it_can(at, namespace):
    message = {"method": "echo", "version": "1.3", "namespace": namespace}
    load = at("havana")
    assert run(load, Havana(), **message) == ("namespace", CTXT, "1.3", "echo", namespace, {})
    assert run(load, Folsom(), **message) == ("dispatch", CTXT, "1.3", "echo", {})
    assert run(load, Havana(), method="echo") == ("namespace", CTXT, None, "echo", None, {})


def test_dispatch_may_be_any_callable(at):
    class Proxy:
        dispatch = staticmethod(Havana().dispatch)

    proxy = Proxy()
    assert run(at("havana"), proxy, method="echo", namespace="n") == ("namespace", CTXT, None, "echo", "n", {})
    proxy.dispatch = lambda ctxt, version, method, **args: method
    assert run(at("havana"), proxy, method="echo", namespace="n") == "echo"


def test_forms_may_be_mixed(at):
    # A program whose era the imports do not tell: the message or the proxy does.
    load = at("essex")
    assert run(load, Folsom(), method="echo", version="1.0")[0] == "dispatch"
    assert run(load, Folsom(), method="echo")[0] == "dispatch"

    class Both(Manager, Folsom):
        pass

    assert run(load, Both(), method="echo", version="1.0")[0] == "dispatch"
    assert run(load, Both(), method="echo", args={"value": 1})[0] == "keyword"
    assert run(at("folsom"), Manager(), method="echo", args={"value": 1})[0] == "keyword"


def test_a_method_called_dispatch_is_a_method_to_essex(at):
    class Scheduler(Manager):
        def dispatch(self, context: Any, value: Any) -> Any:
            return value

    load = at("essex")
    assert run(load, Scheduler(), method="dispatch", args={"value": 1}) == 1
    assert run(load, Scheduler(), method="echo", args={"value": 1})[0] == "keyword"


@pytest.mark.parametrize("era", ["essex", "havana"])
def test_unknown_method(at, era):
    with pytest.raises(AttributeError, match="nothing"):
        run(at(era), Manager(), method="nothing")


def test_what_the_proxy_raises_passes(at):
    class Untouchable:
        def __getattr__(self, name: str) -> Any:
            raise AssertionError(name)

    with pytest.raises(AssertionError):
        run(at("essex"), Untouchable(), method="echo")
