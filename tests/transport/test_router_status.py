"""The state of a process's routers in words, and when a rejected key is final."""

from __future__ import annotations

import pytest

from rpcmq.core.process.dialer import Dialer
from rpcmq.core.process.uplink import Uplink
from rpcmq.errors import RouterUnreachable
from rpcmq.transport.gevent_shell import GeventShell
from rpcmq.transport.router_status import RouterStatus
from rpcmq.wire.bodies import HelloBody

A, B = "tcp://a:7700", "tcp://b:7700"


def status_of(*urls: str) -> tuple[RouterStatus, Dialer]:
    """The status of a process that a router has welcomed before."""
    hello = HelloBody(versions=(1,), identity="api-1", queue_type="roundrobin", role="process", accepts=("json",))
    uplink = Uplink(hello, lambda now, welcome: None, lambda *why: None)
    uplink.origin = bytes(12)
    dialer = Dialer(uplink, urls, 5.0, 2.0)
    dialer.start(0.0)
    return RouterStatus(uplink, dialer, GeventShell()), dialer


def test_a_rejected_key_is_final_only_when_all_routers_reject_it():
    status, _ = status_of(A, B)
    told: list[str] = []
    status.on_denied = told.append
    status.deny(A, "revoked at a")
    status.deny(A, "revoked at a")
    assert told == [], "b may accept it"
    status.deny(B, "revoked at b")
    assert status.denied == "revoked at b" and told == ["revoked at b"]
    status.welcomed()
    status.deny(B, "revoked at b")
    assert told == ["revoked at b"], "a has welcomed us since"
    status.deny(A, "revoked at a")
    assert told == ["revoked at b", "revoked at a"]


def test_with_one_router_it_is_final_at_once():
    status, _ = status_of(A)
    status.deny(A, "revoked")
    assert status.denied == "revoked"


def test_each_rejection_is_told_and_only_the_first_is_logged(caplog):
    status, _ = status_of(A)
    told: list[str] = []
    status.on_denied = told.append
    for _ in range(3):
        status.deny(A, "revoked")
    assert told == ["revoked"] * 3
    assert [record.getMessage() for record in caplog.records] == [f"router {A}: revoked"]


def test_the_error_is_about_keys_when_each_router_is_there_and_refuses_them():
    status, _ = status_of(A, B)

    def is_about_keys() -> bool:
        with pytest.raises(RouterUnreachable) as raised:
            status.wait_ready(0.0, 0.0)
        return raised.value.is_about_keys

    assert not is_about_keys()
    status.note_handshake(A, is_about_keys=True)
    assert not is_about_keys(), "b may take us"
    status.note_handshake(B, is_about_keys=True)
    assert is_about_keys()
    status.note_handshake(A, is_about_keys=False)
    assert not is_about_keys(), "a was restarted"
    status.note_handshake(A, is_about_keys=True)
    status.welcomed()
    status.ready.clear()
    assert not is_about_keys()


def test_the_error_names_all_routers_and_the_last_reason_of_each():
    status, dialer = status_of(A, B)
    for problem in ("no route to host", "it was shut down", "nothing listens there"):
        now = dialer.next_deadline()
        assert now is not None
        dialer.tick(now, 0.5)
        dialer.ended(now, 0.5, problem)
    with pytest.raises(RouterUnreachable) as raised:
        status.wait_ready(0.0, 0.0)
    text = f"no router reachable within 0 s: {A}: nothing listens there; {B}: it was shut down"
    assert str(raised.value) == text


def test_one_router_is_named_alone():
    status, _ = status_of(A)
    with pytest.raises(RouterUnreachable, match=f"^router {A} not reachable within 0 s: no answer$"):
        status.wait_ready(0.0, 0.0)
