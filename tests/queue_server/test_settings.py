"""The settings of a queue: declared by programs, durable, and the same at all queue servers of a mesh."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import rpcmq
from rpcmq.client.queue.settings import QueueSettings
from rpcmq.core.queue.policy import Policy
from rpcmq.errors import CallError, NoConsumer, UsageError
from rpcmq.testing import eventually
from tests.from_threads import each_shell_at_length as client_shell  # noqa: F401
from tests.queue_server.billing import Billing, message
from tests.queue_server.queue_servers import QueueServerProcess


def test_settings_hold_while_the_queue_runs(client, queue_server, work):
    billing = Billing()
    work(billing)
    client.put(None, "billing", message("fail", invoice=1))
    eventually(lambda: billing.attempts[1] == 1)
    changed = client.declare_queue("billing", attempts=3, backoff=0.01)
    assert (changed["attempts"], changed["backoff"], changed["lease"]) == (3, 0.01, 30.0)
    eventually(lambda: billing.attempts[1] == 3)
    assert client.declare_queue("billing", concurrency=1) == changed | {"concurrency": 1}


def test_settings_are_durable(client, queue_server):
    made = client.declare_queue("billing", attempts=3, on_lost="park")
    queue_server.kill()
    queue_server.restart()
    assert client.declare_queue("billing", timeout=60) == made


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"attempts": 0}, "attempts must be an integer of at least 1, not 0"),
        ({"tries": 3}, r"no setting 'tries'; it has attempts, backoff"),
        ({"on_lost": "drop"}, "on_lost must be redeliver or park, not 'drop'"),
        ({"lease": "1"}, "lease must be a number of at least 1, not '1'"),
    ],
)
def test_wrong_settings_are_refused(client, settings, text):
    with pytest.raises(UsageError, match=text):
        client.declare_queue("billing", **settings)


def test_without_a_queue_server_nothing_is_declared(client):
    with pytest.raises(CallError):
        client.declare_queue("billing", attempts=3, timeout=0.2)


def test_all_settings_of_the_engine_can_be_declared():
    assert set(QueueSettings.__annotations__) == set(Policy.__dataclass_fields__)


# --- several queue servers -----------------------------------------------------------------------------


@pytest.fixture
def other_server(router, tmp_path: Path) -> Iterator[QueueServerProcess]:
    """A queue server of another router of the same mesh, as far as clients can tell."""
    with QueueServerProcess(router.url, tmp_path / "others", "there") as server:
        yield server


def settings_at(client: rpcmq.Client, owner: str) -> dict[str, object]:
    """The settings of the queue at one owner."""
    from rpcmq.client.queue.queue_servers import QueueServers

    try:
        found = QueueServers(client, 20.0).look(owner, "show", queue="billing")
    except NoConsumer:
        return {}  # it starts
    return {} if found is None else dict(found["settings"])


def test_all_queue_servers_have_the_same_settings(rpcmq_client, queue_server, other_server):
    def attempts() -> list[object]:
        return [settings_at(rpcmq_client, owner).get("attempts") for owner in ("here", "there")]

    rpcmq_client.declare_queue("billing", attempts=3, backoff=0.5)
    eventually(lambda: attempts() == [3, 3])
    rpcmq_client.declare_queue("billing", attempts=4)
    eventually(lambda: attempts() == [4, 4])
    assert settings_at(rpcmq_client, "here")["backoff"] == settings_at(rpcmq_client, "there")["backoff"] == 0.5


def test_one_that_was_away_learns_what_was_declared_meanwhile(rpcmq_client, queue_server, other_server):
    rpcmq_client.declare_queue("billing", attempts=3)
    eventually(lambda: settings_at(rpcmq_client, "there").get("attempts") == 3)
    other_server.signal(signal.SIGTERM)
    assert other_server.wait() == 0
    rpcmq_client.declare_queue("billing", attempts=4, rate=7.5, timeout=60)
    other_server.restart()
    eventually(lambda: settings_at(rpcmq_client, "there").get("attempts") == 4)
    assert settings_at(rpcmq_client, "there")["rate"] == 7.5
    assert settings_at(rpcmq_client, "here")["attempts"] == 4
