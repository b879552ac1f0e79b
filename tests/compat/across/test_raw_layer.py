"""The kombu driver below its verbs: a process that sends, another that consumes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.compat.across.interpreter import Interpreter, Raised

pytestmark = pytest.mark.integration

FIRST = """
import gevent
from nova import context, flags, rpc
from nova.rpc import amqp, common, impl_kombu
ctxt = context.get_admin_context()
seen = []
"""


@pytest.fixture(scope="module", params=["diablo", "essex", "folsom"])
def pair(program: Callable[..., Interpreter], request: pytest.FixtureRequest) -> tuple[Interpreter, Interpreter]:
    """The sender and the receiver; from Folsom on a connection is given the configuration."""
    conf = "flags.FLAGS" if request.param == "folsom" else ""
    first = f"{FIRST}\nconf = [{conf}]\nconn = impl_kombu.Connection(*conf)"
    sender, receiver = program(request.param, first), program(request.param, first)
    return sender.ready(), receiver.ready()


@pytest.fixture
def sender(pair: tuple[Interpreter, Interpreter]) -> Interpreter:
    return pair[0]


@pytest.fixture
def receiver(pair: tuple[Interpreter, Interpreter]) -> Interpreter:
    pair[1].run("seen.clear(); conn.close(); conn = impl_kombu.Connection(*conf)")
    return pair[1]


def test_a_bare_text_to_a_topic(sender, receiver, topic):
    receiver.run("conn.declare_topic_consumer(topic, seen.append)", topic=topic)
    sender.run("conn.topic_send(topic, 'as it is')", topic=topic)
    assert receiver.run("conn.consume(limit=1); seen") == ["as it is"]


def test_a_fanout_reaches_each_connection(sender, receiver, topic):
    receiver.run(
        """
        other = impl_kombu.Connection(*conf)
        conn.declare_fanout_consumer(topic, lambda message: seen.append(("conn", message)))
        other.declare_fanout_consumer(topic, lambda message: seen.append(("other", message)))
        """,
        topic=topic,
    )
    sender.run("conn.fanout_send(topic, {'to': ['all']})", topic=topic)
    receiver.run("conn.consume(limit=1); other.consume(limit=1); other.close()")
    assert receiver.run("seen") == [("conn", {"to": ["all"]}), ("other", {"to": ["all"]})]


def test_a_direct_send_reaches_who_waits_for_the_id(sender, receiver, topic):
    receiver.run("conn.declare_direct_consumer(topic, seen.append)", topic=topic)
    sender.run("conn.direct_send(topic, {'result': 7}); conn.topic_send(topic, 'not this')", topic=topic)
    assert receiver.run("conn.consume(limit=1); seen") == [{"result": 7}]


def test_what_was_sent_to_an_id_ends_with_its_consumer(sender, receiver, topic):
    receiver.run("conn.declare_direct_consumer(topic, seen.append)", topic=topic)
    sender.run("[conn.direct_send(topic, {'result': n}) for n in range(3)]", topic=topic)
    receiver.run("conn.consume(limit=1); conn.close(); conn = impl_kombu.Connection(*conf)")
    receiver.run("conn.declare_direct_consumer(topic, seen.append)", topic=topic)
    sender.run("conn.direct_send(topic, {'result': 'new'})", topic=topic)
    assert receiver.run("conn.consume(limit=1); seen") == [{"result": 0}, {"result": "new"}]
    with pytest.raises(Raised, match="no message"):
        receiver.run("list(conn.iterconsume(limit=1, timeout=0.2))")


def test_what_is_sent_to_an_id_that_nobody_waits_for_is_dropped(sender, receiver, topic):
    # Its answer tells that the router has read what came before it on the same link.
    asked = "from compat.nova import transport; transport.client().query('summary')"
    sender.run(f"conn.direct_send(topic, {{'result': 'nobody waits'}}); {asked}", topic=topic)
    receiver.run("conn.declare_direct_consumer(topic, seen.append)", topic=topic)
    sender.run("conn.direct_send(topic, {'result': 1})", topic=topic)
    assert receiver.run("conn.consume(limit=1); seen") == [{"result": 1}]


@pytest.mark.parametrize("kind", ["direct", "fanout"])
def test_what_waits_for_one_consumer_only_waits_in_order_and_is_consumed_within_limits(sender, receiver, topic, kind):
    receiver.run(f"conn.declare_{kind}_consumer(topic, seen.append)", topic=topic)
    sender.run(f"[conn.{kind}_send(topic, {{'n': n}}) for n in range(7)]", topic=topic)
    counts = []
    for limit in (1, 2, 1, 3):
        receiver.run("list(conn.iterconsume(limit=limit, timeout=10))", limit=limit)
        counts.append(receiver.run("[each['n'] for each in seen]"))
    assert counts == [[0], [0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 3, 4, 5, 6]]


def test_what_waits_for_one_consumer_only_is_dropped_when_that_is_closed(sender, receiver, topic):
    receiver.run(
        """
        from compat.nova import transport
        run, running = transport.Incoming._run, []

        def counted(self, incoming):
            running.append(incoming)
            try:
                return run(self, incoming)
            finally:
                running.remove(incoming)

        transport.Incoming._run = counted
        conn.declare_direct_consumer(topic, seen.append)
        """,
        topic=topic,
    )
    sender.run("[conn.direct_send(topic, {'n': n}) for n in range(4)]", topic=topic)
    receiver.run("conn.consume(limit=1)")
    receiver.until("len(running)", 3)
    receiver.run("conn.close()")
    receiver.until("len(running)", 0)
    assert receiver.run("transport.Incoming._run = run; seen") == [{"n": 0}]


def test_notify_send_needs_no_consumer_before(sender, receiver, topic):
    sender.run("conn.notify_send(topic, {'event_type': 'early'})", topic=topic)
    receiver.run("conn.declare_topic_consumer(topic, seen.append); conn.consume(limit=1)", topic=topic)
    assert receiver.run("seen") == [{"event_type": "early"}]


def test_consume_takes_no_more_than_its_limit(sender, receiver, topic):
    receiver.run("conn.declare_topic_consumer(topic, seen.append)", topic=topic)
    sender.run("[conn.topic_send(topic, n) for n in range(5)]", topic=topic)
    assert receiver.run("conn.consume(limit=2); seen[:]") == [0, 1]
    # What it left is there for whoever comes next.
    receiver.run("conn.close(); conn = impl_kombu.Connection(*conf); conn.declare_topic_consumer(topic, seen.append)",
                 topic=topic)  # fmt: skip
    assert receiver.run("conn.consume(limit=3); seen") == [0, 1, 2, 3, 4]


def test_iterconsume_gives_a_step_for_each_message(sender, receiver, topic):
    receiver.run("conn.declare_topic_consumer(topic, seen.append)", topic=topic)
    sender.run("[conn.topic_send(topic, n) for n in range(4)]", topic=topic)
    code = "lengths = []\nfor _ in conn.iterconsume(limit=4): lengths.append(len(seen))\nlengths, seen"
    assert receiver.run(code) == ([1, 2, 3, 4], [0, 1, 2, 3])


def test_iterconsume_raises_when_no_message_comes_in_time(sender, receiver, topic):
    receiver.run("conn.declare_topic_consumer(topic, seen.append)", topic=topic)
    with pytest.raises(Raised) as raised:
        receiver.run("list(conn.iterconsume(limit=1, timeout=0.1))")
    assert raised.value.kind == "Timeout"
    sender.run("conn.topic_send(topic, 'later')", topic=topic)
    assert receiver.run("list(conn.iterconsume(limit=1, timeout=10)); seen") == ["later"]


def test_the_timeout_of_iterconsume_is_counted_for_each_message(sender, receiver, topic):
    receiver.run("conn.declare_topic_consumer(topic, seen.append)", topic=topic)
    consuming = receiver.start("list(conn.iterconsume(limit=3, timeout=0.9)); seen")
    sender.run("for n in range(3): gevent.sleep(0.35); conn.topic_send(topic, n)", topic=topic)
    assert receiver.result(consuming) == [0, 1, 2]


def test_a_callback_that_raises_does_not_end_consume(sender, receiver, topic):
    code = "conn.declare_topic_consumer(topic, lambda message: seen.append(10 // message))"
    receiver.run(code, topic=topic)
    sender.run("[conn.topic_send(topic, n) for n in (5, 0, 2)]", topic=topic)
    assert receiver.run("conn.consume(limit=3); seen") == [2, 5]


def test_queues_of_one_topic_each_get_a_copy(sender, receiver, topic):
    receiver.run(
        """
        for queue in ("first", "second"):
            conn.declare_topic_consumer(topic, lambda message, queue=queue: seen.append((queue, message)), queue)
        """,
        topic=topic,
    )
    sender.run("conn.topic_send(topic, 'copy')", topic=topic)
    assert receiver.run("conn.consume(limit=2); sorted(seen)") == [("first", "copy"), ("second", "copy")]


def test_reset_forgets_the_consumers(sender, receiver, topic):
    receiver.run("conn.declare_topic_consumer(topic, lambda message: seen.append('old')); conn.reset()", topic=topic)
    receiver.run("conn.declare_topic_consumer(topic, lambda message: seen.append(message))", topic=topic)
    sender.run("conn.topic_send(topic, 'new')", topic=topic)
    assert receiver.run("conn.consume(limit=1); seen") == ["new"]


def test_consume_ends_when_the_connection_is_closed(receiver, topic):
    receiver.run("conn.declare_topic_consumer(topic, seen.append)", topic=topic)
    consuming = receiver.start("conn.consume()")
    receiver.until("conn._consuming.is_set()", True)
    receiver.run("conn.close()")
    assert receiver.result(consuming) is None


def test_consume_without_limit_runs_a_proxy_s_messages_side_by_side(sender, receiver, topic):
    receiver.run("conn.create_consumer(topic, manager)", topic=topic)
    consuming = receiver.start("conn.consume()")
    code = "rpc.call(ctxt, topic, {'method': method, 'args': {'gate': topic}})"
    waiting = sender.start(code, topic=topic, method="wait")
    receiver.until("manager.started[-1:]", [topic])
    sender.run(code, topic=topic, method="open")
    sender.result(waiting)
    receiver.run("conn.close()")
    receiver.result(consuming)


# --- pooled connections --------------------------------------------------------------------------


def test_a_pooled_connection_is_the_same_one_again(sender):
    """... and the wrapper that was closed cannot be used any more."""
    code = """
    one = impl_kombu.create_connection(*conf, new=False)
    real = one.connection
    one.close()
    two = impl_kombu.create_connection(*conf, new=False)
    same = two.connection is real
    new = impl_kombu.create_connection(*conf, new=True)
    different = new.connection is not real
    new.close()
    two.close()
    same, different
    """
    assert sender.run(code) == (True, True)
    for use in ("one.create_consumer('x', manager)", "one.consume_in_thread()", "one.topic_send('x', 1)"):
        with pytest.raises(Raised) as raised:
            sender.run(use)
        assert raised.value.kinds[0].endswith("rpc.common.InvalidRPCConnectionReuse")


def test_the_next_user_of_a_pooled_connection_has_none_of_the_consumers_before(sender, receiver, topic):
    receiver.run(
        """
        with impl_kombu.create_connection(*conf, new=False) as pooled:
            real = pooled.connection
            pooled.declare_topic_consumer(topic, lambda message: seen.append("first user"))
            pooled.consume_in_thread()
        pooled = impl_kombu.create_connection(*conf, new=False)
        assert pooled.connection is real
        pooled.declare_topic_consumer(topic, seen.append)
        """,
        topic=topic,
    )
    sender.run("conn.topic_send(topic, 'second user')", topic=topic)
    assert receiver.run("pooled.connection.consume(limit=1); pooled.close(); seen") == ["second user"]


def test_what_waits_longer_than_its_timeout_is_not_delivered(sender, receiver, topic):
    receiver.run("conn.declare_topic_consumer(topic, seen.append)", topic=topic)
    sender.run("conn.topic_send(topic, 'late', 0.1); conn.topic_send(topic, 'in time')", topic=topic)
    assert receiver.run("gevent.sleep(0.3); conn.consume(limit=1); seen") == ["in time"]


def test_a_consumer_and_a_publisher_of_a_class(sender, receiver, topic):
    receiver.run("made = conn.declare_consumer(impl_kombu.DirectConsumer, topic, seen.append)", topic=topic)
    assert receiver.run("isinstance(made, impl_kombu.DirectConsumer)")
    sender.run("conn.publisher_send(impl_kombu.DirectPublisher, topic, {'result': 1})", topic=topic)
    assert receiver.run("conn.consume(limit=1); seen") == [{"result": 1}]


def test_what_looks_like_a_lost_connection_is_tried_again(sender):
    sender.run(
        """
        class Lost(Exception):
            pass

        errors = [IOError("closed"), Exception("a timeout of it"), Lost("gone")]
        said = []

        def fail():
            if errors:
                raise errors.pop(0)
            return "done"

        conn.connection_errors = (Lost,)
        """
    )
    assert sender.run("conn.ensure(said.append, fail), [str(each) for each in said]") == (
        "done", ["closed", "a timeout of it", "gone"],
    )  # fmt: skip
    with pytest.raises(Raised, match="KeyError"):
        sender.run("conn.ensure(None, {}.__getitem__, 1)")


def test_tls_as_it_is_configured(sender):
    assert sender.run("conn.connection.ssl") is False
    sender.run("flags.FLAGS.rabbit_use_ssl, flags.FLAGS.kombu_ssl_certfile = True, 'cert.pem'")
    assert sender.run("conn.connection.ssl, conn.connection.hostname") == ({"certfile": "cert.pem"}, "localhost")
    sender.run("flags.FLAGS.rabbit_use_ssl, flags.FLAGS.kombu_ssl_certfile = False, ''")


def test_a_raw_message_that_comes_again_is_recognised(sender, receiver, topic):
    receiver.run(
        """
        cache = amqp._MsgIdCache()

        def once(message):
            try:
                cache.check_duplicate_message(message)
                seen.append(message)
            except common.DuplicateMessageError:
                seen.append("again")

        conn.declare_topic_consumer(topic, once)
        """,
        topic=topic,
    )
    sender.run("msg = {'args': 'text'}; amqp._add_unique_id(msg); [conn.topic_send(topic, msg) for _ in '12']",
               topic=topic)  # fmt: skip
    assert receiver.run("conn.consume(limit=2); seen") == [{"args": "text"}, "again"]


def test_the_receiver_of_zmq_has_nothing_to_do_until_it_is_closed(sender):
    sender.run(
        """
        from nova.rpc import impl_zmq
        proxy = impl_zmq.ZmqProxy(*conf)
        proxy.register(impl_zmq.InternalContext(None), "tcp://*:9501", 7, out_bind=True)
        proxy.consume_in_thread()
        waiting = gevent.spawn(proxy.wait)
        """
    )
    assert sender.run("gevent.sleep(0.05); waiting.ready(), proxy.close(), waiting.join(20), waiting.ready()") == (
        False, None, None, True,
    )  # fmt: skip


def test_whether_a_lock_is_held(sender):
    sender.run(
        """
        from nova.openstack.common import local

        def checked(debug):
            flags.FLAGS.debug = debug
            local.strong_store.locks_held = ["a lock"]
            while_held = rpc._check_for_lock()
            del local.strong_store.locks_held
            return while_held, rpc._check_for_lock()
        """
    )
    assert sender.run("checked(debug=True)") == (True, False)
    assert sender.run("checked(debug=False)") == (None, None)
