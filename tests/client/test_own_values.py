"""Values and exceptions of classes of one's own, from a caller to a service and back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import rpcmq
from rpcmq.errors import PayloadRefused, RemoteError
from rpcmq.payload import allow_list
from tests.client.endpoints import message
from tests.payload import own_classes
from tests.payload.own_classes import Flavor, PlaceError, QuotaError, State


class Quotas:
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def take(self, ctx: Any, value: Any) -> Any:
        self.seen.append(value)
        return [value, Flavor("small", 1)]

    def refuse(self, ctx: Any) -> None:
        raise QuotaError(resource="disks", limit=7)

    def some(self, ctx: Any) -> Iterator[Any]:
        yield 1
        raise PlaceError("h", "full", code=9)


@pytest.fixture(autouse=True)
def nothing_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allow_list, "_ALLOWED", allow_list._Allowed())


@pytest.mark.parametrize("how", [{}, {"direct": True}])
def test_one_line_lets_values_and_exceptions_of_ones_own_through(client, serve, how):
    quotas = Quotas()
    service = serve(quotas, direct=True)
    with pytest.raises(PayloadRefused, match=r"write rpcmq\.allow\(State\) in this process .* which receives it"):
        client.call(None, "compute", message("take", value=State.ACTIVE), timeout=10, **how)
    assert not quotas.seen
    with pytest.raises(RemoteError) as raised:
        client.call(None, "compute", message("refuse"), timeout=10, **how)
    assert "write rpcmq.allow(QuotaError) here, in the process that calls" in raised.value.reason

    rpcmq.allow(own_classes)  # for the client and the service, which exist already
    answer = client.call(None, "compute", message("take", value=State.ACTIVE), timeout=10, **how)
    assert answer == [State.ACTIVE, Flavor("small", 1)] and type(answer[1]) is Flavor
    with pytest.raises(QuotaError) as refused:
        client.call(None, "compute", message("refuse"), timeout=10, **how)
    assert (refused.value.resource, refused.value.limit) == ("disks", 7)
    assert vars(refused.value)["remote_host"] == service.client.identity


def test_in_a_stream(client, serve):
    serve(Quotas())
    rpcmq.allow(own_classes)
    items = client.multicall(None, "compute", message("some"), timeout=10)
    assert next(items) == 1
    with pytest.raises(PlaceError) as raised:
        next(items)
    assert (raised.value.host, raised.value.code) == ("h", 9)


def test_the_setting_of_one_client_lets_them_through_for_that_one(connect, serve, client):
    serve(Quotas(), allow=["tests.payload.own_classes:*"])
    allowing = connect(allow=["tests.payload.own_classes:*"])
    assert allowing.call(None, "compute", message("take", value=State.ACTIVE), timeout=10)[0] is State.ACTIVE
    with pytest.raises(QuotaError):
        allowing.call(None, "compute", message("refuse"), timeout=10)
    with pytest.raises(RemoteError, match=r"was not decoded: .*write rpcmq\.allow\(State\)"):
        client.call(None, "compute", message("take", value=State.ACTIVE), timeout=10)
    with pytest.raises(RemoteError, match="QuotaError"):
        client.call(None, "compute", message("refuse"), timeout=10)
