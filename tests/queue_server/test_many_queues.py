"""More queues than a queue server can serve: those that were opened for nothing make room, and used ones never do."""

from __future__ import annotations

import pytest

from rpcmq.client import Client
from rpcmq.client.queue import puts
from rpcmq.client.queue.protocol import SETTINGS, all_queues, at_operators
from rpcmq.client.queue.queue_servers import QueueServers
from rpcmq.errors import PutRefused, RemoteError
from rpcmq.testing import InProcessRouter, eventually
from tests.queue_server.queue_servers import QueueServerProcess

pytestmark = pytest.mark.integration

MESSAGE = {"method": "charge", "args": {"invoice": 17}}


def opened(client: Client, queue: str) -> bool:
    try:
        client.call(None, all_queues(), {"method": "open", "args": {"queue": queue}}, 20.0)
    except RemoteError as error:
        assert "250 are the most" in error.value
        return False
    return True


@pytest.mark.long
@pytest.mark.usefixtures("queue_server")
def test_queues_that_were_opened_and_never_used_make_room_for_others(router: InProcessRouter) -> None:
    with Client(router.url, shell="gevent") as client:
        client.put(None, "billing", MESSAGE)
        assert all(opened(client, f"flood-{number}") for number in range(249))
        assert not opened(client, "one more")
        with pytest.raises(PutRefused, match=r"queue 'honest' cannot be opened: .* 250 are the most"):
            client.put(None, "honest", MESSAGE)
        eventually(lambda: opened(client, "honest"), 30.0)
        assert client.put(None, "honest", MESSAGE).number == 1
        # What was closed is opened again as if it were new.
        eventually(lambda: opened(client, "flood-0"), 30.0)
        assert client.put(None, "flood-0", MESSAGE).number == 1
        assert client.put(None, "billing", MESSAGE).number == 2


@pytest.mark.usefixtures("queue_server")
def test_who_opens_many_queues_and_uses_none_is_in_the_way_of_nobody_else(router: InProcessRouter) -> None:
    with Client(router.url, shell="gevent") as flooding, Client(router.url, shell="gevent") as honest:
        assert all(opened(flooding, f"flood-{number}") for number in range(250))
        assert not opened(flooding, "one more")
        assert [honest.put(None, f"honest-{number}", MESSAGE).number for number in range(3)] == [1, 1, 1]
        assert flooding.put(None, "flood-249", MESSAGE).number == 1


@pytest.mark.long
@pytest.mark.timeout(180)
@pytest.mark.usefixtures("queue_server")
def test_a_queue_that_was_opened_and_never_used_is_forgotten(router: InProcessRouter) -> None:
    def names() -> list[str]:
        return [row["queue"] for row in QueueServers(client, 20.0).look("here", "queues")["queues"]]

    with Client(router.url, shell="gevent") as client:
        client.put(None, "billing", MESSAGE)
        assert opened(client, "mistyped") and names() == ["billing", "mistyped"]
        eventually(lambda: names() == ["billing"], 150.0)
        assert client.put(None, "mistyped", MESSAGE).number == 1


def test_queues_that_are_declared_elsewhere_wait_for_room_and_the_log_says_so_once(
    router: InProcessRouter, queue_server: QueueServerProcess
) -> None:
    names = [f"elsewhere-{number}" for number in range(252)]
    with Client(router.url, shell="gevent") as client:
        client.put(None, "billing", MESSAGE)
        for first in range(0, len(names), 84):
            declared = [(name, 5, {"attempts": 3}) for name in names[first : first + 84]]
            message = {"method": "learn", "args": {"declared": declared}}
            client.call(None, at_operators(SETTINGS, "here"), message, 20.0)

        def refusals() -> list[str]:
            return [line for line in queue_server.lines if "is not served, and its items wait" in line]

        eventually(lambda: len(refusals()) == 3)
        assert all("250 are the most" in line for line in refusals())
        assert client.put(None, "billing", MESSAGE).number == 2
        served = QueueServers(client, 20.0).look("here", "queues")["queues"]
        assert len(served) == 250 and len(refusals()) == 3


@pytest.mark.usefixtures("queue_server")
def test_a_client_of_another_version_is_refused(router: InProcessRouter, monkeypatch: pytest.MonkeyPatch) -> None:
    with Client(router.url, shell="gevent") as client:
        client.put(None, "billing", MESSAGE)
        monkeypatch.setattr(puts, "VERSION", 99)
        for queue in ("billing", "mails"):  # of one the owner is known, of the other it is asked for
            with pytest.raises(PutRefused, match="speaks version 1 of the messages of queues, and this client 99"):
                client.put(None, queue, MESSAGE, timeout=60)
