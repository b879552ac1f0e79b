"""The traps that others fell into, each by name. More of them are in the files beside this one."""

from __future__ import annotations

import re

import gevent
import pytest

from rpcmq.client import Client
from rpcmq.errors import CallTimeout, NestedCallError
from rpcmq.testing import eventually
from rpcmq.testing.processes import RouterProcess
from tests.integration.cluster import QUICK, Proxy, consumers, counts, explained, message, node, program

pytestmark = [pytest.mark.integration, pytest.mark.fault]


def test_trap_alive_but_not_consuming_after_a_reconnect():
    with RouterProcess() as router, Proxy(router.url) as proxy, Client(router.url) as client, node(proxy.url):
        for n in range(3):
            proxy.reset()
            assert client.call(None, "compute", message("add", a=n), timeout=20) == n
        for n in range(3):
            router.kill()
            router.restart()
            assert client.call(None, "compute", message("add", a=n), timeout=20) == n
            proxy.reset()
            assert client.call(None, "compute", message("add", a=n), timeout=20) == n


def test_trap_the_caller_blamed_for_the_callees_fault():
    # The caller of the callee is told what its callee was told: by name, with the callee's host.
    with (
        RouterProcess() as router,
        Client(router.url) as client,
        node(router.url, "front"),
        node(router.url, "back") as back,
    ):
        ask = message("ask", topic="nobody", method="where", timeout=1.0)
        raised = explained(NestedCallError, client.call, None, "compute.front", ask, 60)
        assert re.search(r"CallTimeout: .*no consumer on 'nobody'", str(raised))
        assert vars(raised)["remote_host"] == "front"
        call = gevent.spawn(
            client.call, None, "compute.front", message("ask", topic="compute.back", method="wait", timeout=30), 30
        )
        eventually(lambda: consumers(client)["back"]["in_flight"] == 1)
        back.kill()
        with pytest.raises(NestedCallError, match=r"LinkLost: .*back went away") as lost:
            call.get(timeout=20)
        assert vars(lost.value)["remote_host"] == "front"
        # The front itself is as it was, and so is its caller.
        assert client.call(None, "compute.front", message("add", a=1), 20) == 1
        assert {name: row["state"] for name, row in consumers(client).items()} == {"front": "answering"}


def test_trap_the_reply_route_lost():
    # The answer finds its caller though the caller's connection is another one by then.
    with RouterProcess() as router, Proxy(router.url) as proxy, Client(proxy.url) as client, node(router.url):
        calls = [gevent.spawn(client.call, None, "compute", message("run", key=n, seconds=1), 30) for n in range(20)]
        with Client(router.url) as other:
            eventually(lambda: len(counts(other)) == 20)
        proxy.reset()
        gevent.joinall(calls, 20)
        assert [c.value for c in calls] == list(range(20))
        assert client.process.connection.reconnects >= 1


def test_trap_a_late_answer_accepted():
    # A consumer that was given up and comes back answers a call that somebody else has by then.
    with (
        RouterProcess(**QUICK, link_resume_seconds=0.5, link_consumer_grace_seconds=0.1) as router,
        Client(router.url) as client,
        Proxy(router.url) as proxy,
        node(proxy.url, "late") as late,
    ):
        call = gevent.spawn(
            client.call, None, "compute", message("run", key="k", seconds=1.5), timeout=60, idempotent=True
        )
        eventually(lambda: consumers(client)["late"]["in_flight"] == 1)
        late.pause()
        proxy.reset()
        eventually(lambda: consumers(client) == {})
        with node(router.url, "second"):
            eventually(lambda: consumers(client)["second"]["in_flight"] == 1)
            late.resume()
            assert call.get(timeout=30) == "k"
            assert counts(client, "second") == {"k": 1}
            eventually(lambda: set(consumers(client)) == {"late", "second"})
            # The late one has run it too, as an idempotent call may; its answer changed nothing.
            eventually(lambda: sum(row["in_flight"] for row in consumers(client).values()) == 0)
            assert client.query("summary")["calls_in_flight"] == 0


def test_trap_state_stuck_after_a_restart():
    # Half-open handshakes, registrations under way and queued calls all come to an end.
    with RouterProcess() as router, Client(router.url, connect_timeout=60) as client:
        router.kill()
        starting = program("node", router.url, "node-1")
        with starting:
            waiting = [gevent.spawn(client.call, None, "compute", message("add", a=n), 60) for n in range(10)]
            gevent.sleep(0.3)
            router.restart()
            starting.expect("serving", 30)
            gevent.joinall(waiting, 30)
            assert [w.value for w in waiting] == list(range(10))
            router.kill()
            router.restart()
            assert client.call(None, "compute", message("add", a=1), 20) == 1
            eventually(lambda: list(consumers(client)) == ["node-1"])


def test_trap_identities_that_never_go_away():
    with RouterProcess(link_resume_seconds=0.5) as router, Client(router.url) as client:
        for n in range(3):
            with node(router.url, f"node-{n}") as gone:
                eventually(lambda: consumers(client))
                gone.kill()
        eventually(lambda: router.varz()["links"] == 1)
        assert consumers(client) == {}
        # The name is free for another process.
        with node(router.url, "node-0"):
            assert list(consumers(client)) == ["node-0"]


def test_trap_a_second_process_of_the_same_identity():
    with RouterProcess() as router, Client(router.url) as client, node(router.url, "node-1"):
        with program("node", router.url, "node-1") as second:
            assert second.wait(30) != 0
            assert "IdentityTaken: identity 'node-1' is taken by a live process" in second.said()
        assert client.call(None, "compute.node-1", message("add", a=1), 20) == 1


def test_trap_the_last_messages_at_exit():
    count = 2000
    with RouterProcess() as router, Client(router.url) as client, node(router.url):
        with program("caster", router.url, count, 1000) as caster:
            assert caster.wait(60) == 0, caster.said()
            assert caster.lines[-1] == "closed 0"
        eventually(lambda: counts(client) == dict.fromkeys(range(count), 1), 20)

        def nobody_else() -> bool:
            rows = client.query("processes")["processes"]
            assert {row["identity"] for row in rows} == {client.identity, "node-1"}, (
                rows,
                caster.said(),
                router.said(),
            )
            return True

        assert eventually(nobody_else)


def test_trap_the_last_messages_of_one_who_leaves_soon_after_a_restart_of_the_router():
    with RouterProcess() as router, Client(router.url) as client, node(router.url):
        with program("caster", router.url, 50, 1000) as caster:
            assert caster.wait(60) == 0
        client.call(None, "compute", message("add", a=1))
        eventually(lambda: len(counts(client)) == 50)
        leaving = Client(router.url)
        leaving.connect()
        # They are on their way when the router dies, so they carry the mark of a repetition.
        router.pause()
        for n in range(50, 100):
            leaving.cast(None, "compute", message("run", key=n))
        eventually(lambda: not leaving.process.uplink.outbox)
        router.kill()
        router.restart()
        leaving.close(20)
        eventually(lambda: counts(client) == dict.fromkeys(range(100), 1))


def test_trap_calls_do_not_starve_behind_a_consumer_that_takes_and_never_answers():
    with (
        RouterProcess() as router,
        Client(router.url) as client,
        node(router.url, "stuck", 2),
        node(router.url, "good"),
    ):
        held = [gevent.spawn(client.call, None, "compute.stuck", message("run", key=n, seconds=60), 60) for n in (1, 2)]
        eventually(lambda: consumers(client)["stuck"]["in_flight"] == 2)
        assert {client.call(None, "compute", message("where"), 10) for _ in range(50)} == {"good"}
        late = explained(CallTimeout, client.call, None, "compute.stuck", message("where"), 0.2)
        assert re.search(r"all 1 consumers of 'compute.stuck' are busy \(2 of 2 in flight\)", str(late))
        gevent.killall(held)
        eventually(lambda: client.query("summary")["calls_in_flight"] == 0)
