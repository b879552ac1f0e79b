"""The classes of Cactus to Diablo m3, used one by one: a process that consumes by hand, another that sends."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.compat.across.interpreter import Interpreter

pytestmark = pytest.mark.integration

FIRST = """
import gevent
from nova import context, rpc
ctxt = context.get_admin_context()
got = []
"""


@pytest.fixture(scope="module", params=["cactus", "diablo"])
def pair(program: Callable[..., Interpreter], request: pytest.FixtureRequest) -> tuple[Interpreter, Interpreter]:
    sender, receiver = (program(request.param, FIRST) for _ in range(2))
    return sender.ready(), receiver.ready()


@pytest.fixture
def sender(pair: tuple[Interpreter, Interpreter]) -> Interpreter:
    return pair[0]


@pytest.fixture
def receiver(pair: tuple[Interpreter, Interpreter]) -> Iterator[Interpreter]:
    pair[1].run("got.clear(); manager.take(); consumer = None")
    yield pair[1]
    pair[1].run("consumer and consumer.close()")


SEND = "rpc.TopicPublisher(rpc.Connection.instance(), topic).send(message)"


def test_a_connection_of_the_process_and_new_ones(sender):
    code = """
    one, two = rpc.Connection.instance(new=False), rpc.Connection.instance(new=False)
    new = rpc.Connection.instance(new=True)
    again = rpc.Connection.recreate()
    one is two, new is one, again is one, rpc.Connection.instance(new=False) is again
    """
    assert sender.run(code) == (True, False, False, True)


def test_callbacks_get_data_and_message(sender, receiver, topic):
    receiver.run(
        """
        consumer = rpc.TopicAdapterConsumer(rpc.Connection.instance(), topic, manager)
        consumer.callbacks.clear()
        def callback(data, message):
            message.ack()
            got.append(data)
        consumer.register_callback(callback)
        timer = consumer.attach_to_eventlet()
        """,
        topic=topic,
    )
    sender.run(SEND, topic=topic, message={"any": ["thing", None]})
    receiver.until("got", [{"any": ["thing", None]}])
    receiver.run("timer.stop(); timer.wait()")


def test_fetch_takes_one_message_if_there_is_one(sender, receiver, topic):
    receiver.run("consumer = rpc.TopicAdapterConsumer(rpc.Connection.instance(), topic, manager)", topic=topic)
    assert receiver.run("consumer.fetch() is None") is True
    message = {"method": "note", "args": {"value": "fetched"}}
    for _ in range(3):
        sender.run(SEND, topic=topic, message=message)
    assert receiver.run("consumer.fetch().payload") == message
    assert receiver.run("manager.seen") == []
    receiver.run("consumer.fetch(enable_callbacks=True)")
    assert receiver.run("manager.seen") == ["fetched"]
    receiver.run("timer = consumer.attach_to_eventlet()")
    receiver.until("manager.seen", ["fetched", "fetched"])


def test_a_direct_consumer_gets_what_is_sent_to_its_id(sender, receiver, topic):
    receiver.run(
        """
        consumer = rpc.DirectConsumer(rpc.Connection.instance(), msg_id)
        consumer.register_callback(lambda data, message: got.append(data))
        timer = consumer.attach_to_eventlet()
        """,
        msg_id=topic,
    )
    code = "with rpc.DirectPublisher(rpc.Connection.instance(), msg_id) as p: p.send({'result': 1, 'failure': None})"
    sender.run(code, msg_id=topic)
    receiver.until("got", [{"result": 1, "failure": None}])


def test_a_fanout_publisher_reaches_each_fanout_consumer(sender, receiver, topic):
    receiver.run(
        """
        connections = [rpc.Connection.instance(new=True) for _ in range(2)]
        pair = [rpc.FanoutAdapterConsumer(connection=each, topic=topic, proxy=manager) for each in connections]
        timers = [each.attach_to_eventlet() for each in pair]
        """,
        topic=topic,
    )
    message = {"method": "note", "args": {"value": "all"}}
    sender.run("rpc.FanoutPublisher(topic, rpc.Connection.instance()).send(message)", topic=topic, message=message)
    receiver.until("manager.seen", ["all", "all"])
    receiver.run("[each.close() for each in pair]")


def test_msg_reply_answers_a_call_by_hand(sender, receiver, topic):
    """In Cactus once; in Diablo a reply of None says that there are no more."""
    receiver.run(
        """
        consumer = rpc.TopicAdapterConsumer(rpc.Connection.instance(), topic, manager)
        consumer.callbacks.clear()
        def by_hand(data, message):
            rpc.msg_reply(data["_msg_id"], data["args"]["value"] * 2, None)
            if compat.nova.era() == "diablo":
                rpc.msg_reply(data["_msg_id"], None, None)
        consumer.register_callback(by_hand)
        timer = consumer.attach_to_eventlet()
        """,
        topic=topic,
    )
    message = {"method": "any", "args": {"value": 21}}
    assert sender.run("rpc.call(ctxt, topic, message)", topic=topic, message=message) == 42
    assert sender.run("list(rpc.multicall(ctxt, topic, message))", topic=topic, message=message) == [42]


def test_a_consumer_set_serves_a_limited_number(sender, receiver, topic):
    receiver.run(
        """
        connection = rpc.Connection.instance(new=True)
        consumer = rpc.ConsumerSet(connection=connection, consumer_list=[
            rpc.TopicAdapterConsumer(connection=connection, topic=topic + end, proxy=manager) for end in "ab"
        ])
        """,
        topic=topic,
    )
    for end in "ab":
        sender.run(SEND, topic=topic + end, message={"method": "note", "args": {"value": end}})
    receiver.run("consumer.wait(limit=2)")
    assert sorted(receiver.run("manager.seen")) == ["a", "b"]


def test_what_test_bases_replace_may_be_replaced(sender, receiver, topic):
    """``attach_to_eventlet`` of the class, and the pool of connections, as Nova's own did."""
    receiver.run(
        """
        original = rpc.Consumer.attach_to_eventlet
        attached = []
        def attach(self):
            attached.append(self.topic)
            return original(self)
        rpc.Consumer.attach_to_eventlet = attach
        rpc.ConnectionPool = rpc.Pool(max_size=2)
        consumer = rpc.TopicAdapterConsumer(rpc.Connection.instance(), topic, manager)
        timer = consumer.attach_to_eventlet()
        rpc.Consumer.attach_to_eventlet = original
        """,
        topic=topic,
    )
    assert receiver.run("attached") == [topic]
    message = {"method": "add", "args": {"a": 1, "b": 1}}
    assert sender.run("rpc.call(ctxt, topic, message)", topic=topic, message=message) == 2
    code = """
    facts = [rpc.ConnectionPool.max_size, len(rpc.ConnectionPool.free_items), rpc.ConnectionPool.current_size]
    with rpc.ConnectionPool.item() as connection:
        facts.append(isinstance(connection, rpc.Connection))
    facts + [len(rpc.ConnectionPool.free_items), rpc.ConnectionPool.current_size]
    """
    assert receiver.run(code) == [2, 0, 0, True, 1, 1]


def test_a_pool_is_a_queue_or_a_stack(sender):
    code = """
    order = []
    for pool in (rpc.Pool(max_size=3), rpc.Pool(max_size=3, order_as_stack=True)):
        one, two = pool.get(), pool.get()
        pool.put(one)
        pool.put(two)
        order.append(pool.get() is one)
    order
    """
    assert sender.run(code) == [True, False]


def test_what_is_fanned_out_before_a_consumer_set_waits_is_not_lost(sender, receiver, topic):
    receiver.run(
        """
        connection = rpc.Connection.instance(new=True)
        consumer = rpc.ConsumerSet(connection=connection, consumer_list=[
            rpc.TopicAdapterConsumer(connection=connection, topic=topic, proxy=manager),
            rpc.FanoutAdapterConsumer(connection=connection, topic=topic, proxy=manager),
        ])
        """,
        topic=topic,
    )
    message = {"method": "note", "args": {"value": 1}}
    sender.run("rpc.FanoutPublisher(topic).send(message)", topic=topic, message=message)
    receiver.run("waiting = gevent.spawn(consumer.wait)")
    receiver.until("manager.seen", [1])
    receiver.run("waiting.kill()")
    sender.run(SEND, topic=topic, message={"method": "note", "args": {"value": 2}})
    assert receiver.run("gevent.sleep(0.2); manager.seen") == [1]
    receiver.run("waiting = gevent.spawn(consumer.wait)")
    receiver.until("manager.seen", [1, 2])
    receiver.run("waiting.kill()")


def test_the_module_amqp_has_them_too(sender):
    """As in the fourth milestone, whose backend it was."""
    code = "from nova.rpc import amqp, classes; [name for name in classes.__all__ if not hasattr(amqp, name)]"
    assert sender.run(code) == []
    assert sender.run("amqp.Consumer is rpc.Consumer and hasattr(amqp, 'nothing')") is False
