"""Wrong arguments, and how clients, services and the package show themselves."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import rpcmq
import rpcmq.threads
from rpcmq import rpc
from rpcmq.errors import ConfigError, UsageError
from tests.client.endpoints import Compute, message

KINDS = pytest.mark.parametrize("kind", [rpcmq, rpcmq.threads])
NOWHERE = "tcp://127.0.0.1:1"


def test_the_package_lists_its_names() -> None:
    assert {"Client", "Service", "allow", "rpc", "threads", "__version__"} <= set(dir(rpcmq))
    assert set(rpcmq.__all__) <= set(dir(rpcmq))
    assert all(getattr(rpcmq, name) is not None for name in rpcmq.__all__)


@KINDS
def test_a_client_and_a_service_show_their_identity_router_and_topic(kind: Any) -> None:
    with kind.Client(NOWHERE, "me", linger_seconds=0) as client:
        shown = "<Client 'me' at tcp://127.0.0.1:1>"
        assert repr(client) == shown
        assert repr(kind.Service("compute", Compute(), host="n", client=client)) == (
            f"<Service of compute.n by Compute, {shown}>"
        )
    assert repr(client) == "<Client 'me' at tcp://127.0.0.1:1, closed>"


@KINDS
@pytest.mark.parametrize("endpoint", [None, object(), ModuleType("empty"), SimpleNamespace()])
def test_an_endpoint_without_methods_is_refused(kind: Any, endpoint: object) -> None:
    with pytest.raises(UsageError, match="has no public method"):
        kind.Service("q", endpoint, router=NOWHERE)


class Dynamic:
    def __getattr__(self, name: str) -> Callable[..., str]:
        return lambda ctx: name


@KINDS
def test_a_class_in_place_of_its_instance_is_refused(kind: Any) -> None:
    with pytest.raises(UsageError, match=r"endpoint is the class Compute.*give an instance of it: Compute\(\.\.\.\)"):
        kind.Service("q", Compute, router=NOWHERE)


def test_a_class_of_static_methods_is_served(router, serve) -> None:
    class Tools:
        @staticmethod
        def double(ctx: Any, n: int) -> int:
            return 2 * n

    serve(Tools)
    assert rpc.call(None, "compute", {"method": "double", "args": {"n": 2}}, timeout=20) == 4


def test_what_cannot_be_told_of_progress_is_refused_before_anything_is_sent(router, serve) -> None:
    compute = Compute()
    serve(compute)
    wrong: Any = "x"
    for direct in (False, True):
        with pytest.raises(UsageError, match="on_progress must be callable, not 'x'"):
            rpc.call(None, "compute", message("note", value=1), on_progress=wrong, direct=direct)
    assert compute.seen == []


def test_an_endpoint_that_makes_its_methods_as_they_are_asked_for_is_served(router, serve) -> None:
    serve(Dynamic())
    assert rpc.call(None, "compute", message("anything"), timeout=20) == "anything"


@KINDS
def test_a_service_over_no_client_is_refused(kind: Any) -> None:
    for wrong in (5, 0, "client", kind.Client):
        with pytest.raises(UsageError, match="client must be a Client, not"):
            kind.Service("q", Compute(), client=wrong)


@KINDS
def test_a_service_over_a_client_has_no_connection_of_its_own(kind: Any) -> None:
    client = kind.Client(NOWHERE)
    for given in ({"router": "tcp://127.0.0.1:2"}, {"identity": "node-7"}, {"timout": 5}):
        (name,) = given
        with pytest.raises(UsageError, match=f"give {name} to the client that is shared, or leave out client"):
            kind.Service("q", Compute(), client=client, **given)
    client.close(0)


def test_a_client_of_plain_threads_is_not_put_into_gevent(monkeypatch) -> None:
    with pytest.raises(ConfigError, match=r"shell = 'gevent': a client of rpcmq.threads lives in a plain thread"):
        rpcmq.threads.Client(NOWHERE, shell="gevent")
    monkeypatch.setenv("RPCMQ_SHELL", "gevent")  # for other programs of this environment
    rpcmq.threads.Client(NOWHERE, shell="threads").close(0)
    rpcmq.threads.Client(NOWHERE).close(0)


def test_the_default_client_can_only_be_a_client() -> None:
    for wrong in (5, "tcp://127.0.0.1:1", rpcmq.Client):
        with pytest.raises(UsageError, match=r"rpc.configure takes a Client or None, not"):
            rpc.configure(wrong)  # type: ignore[arg-type]


@KINDS
def test_errors_name_the_bound_of_a_timeout_and_the_class_that_is_public(kind: Any) -> None:
    with kind.Client(NOWHERE, linger_seconds=0) as client:
        with pytest.raises(UsageError, match="timeout must be a positive number of seconds below 4,000,000, not 1000"):
            client.call(None, "compute", message("add"), timeout=1e12)
        for verb in (client.call, client.query, client.connect, client.notify):
            with pytest.raises(TypeError, match=rf"^Client\.{verb.__name__}\(\) got an unexpected keyword"):
                verb(nonsense=1)
        with pytest.raises(TypeError, match=r"^Service\.start\(\) got an unexpected keyword"):
            kind.Service("q", Compute(), client=client).start(nonsense=1)


@KINDS
@pytest.mark.parametrize("group", ["x" * 256, "a\nb", "\ud800", 5, b"x"], ids=ascii)
def test_a_group_that_has_no_name_is_refused(kind: Any, group: Any) -> None:
    text = "group must be a printable str of at most 255 characters, not "
    with kind.Client(NOWHERE, linger_seconds=0) as client:
        with pytest.raises(UsageError, match=text):
            kind.Service("q", Compute(), client=client, group=group)
        for verb in (client.declare, client.purge):
            with pytest.raises(UsageError, match=text):
                verb("q", group=group)


class Asynchronous:
    async def wait(self, ctx: object) -> None: ...


@KINDS
def test_the_refusal_of_async_methods_is_true_of_greenlets_and_threads(kind: Any) -> None:
    with pytest.raises(UsageError, match="in a greenlet or a thread, has no asyncio event loop"):
        kind.Service("q", Asynchronous(), router=NOWHERE)
