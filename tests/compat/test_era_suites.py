"""Suites of Cactus to Essex: what one test leaves behind is not there in the next."""

from __future__ import annotations

from tests.compat.test_finder import write
from tests.compat.test_plugin import passes

#: A manager, and a proxy that nobody may look at.
COMMON = """
import unittest
from eventlet import greenthread
from nova import context, fakerabbit, flags, rpc, test
FLAGS = flags.FLAGS
FLAGS.set_default("fake_rabbit", True)
ctxt = context.get_admin_context()

class Manager:
    def __init__(self):
        self.seen = []
    def add(self, context, a, b):
        return a + b
    def note(self, context, value):
        self.seen.append(value)

class NeverCalled(object):
    def __getattribute__(*args):
        assert False, "I should never get called."

def consume(proxy, topic="compute"):
    rpc.TopicAdapterConsumer(rpc.Connection.instance(new=True), topic, proxy).attach_to_eventlet()

class Mixin:
    def test_1_leaves_a_message(self):
        rpc.TopicAdapterConsumer(rpc.Connection.instance(new=True), "compute", None)
        rpc.cast(ctxt, "compute", {"method": "note", "args": {"value": 1}})

    def test_2_does_not_see_it(self):
        manager = Manager()
        consume(manager)
        greenthread.sleep(0.2)
        self.assertEqual(manager.seen, [])
        rpc.cast(ctxt, "compute", {"method": "note", "args": {"value": 2}})
        greenthread.sleep(0.2)
        self.assertEqual(manager.seen, [2])

    def test_3_leaves_a_consumer(self):
        consume(NeverCalled())

    def test_4_does_not_meet_it(self):
        consume(Manager())
        for number in range(6):
            message = {"method": "add", "args": {"a": number, "b": 1}}
            self.assertEqual(rpc.call(ctxt, "compute", message), number + 1)
"""

POOLS = """
    def test_5_empties_the_pool(self):
        taken = [rpc.ConnectionPool.get() for _ in range(FLAGS.rpc_conn_pool_size)]
        self.assertFalse(rpc.ConnectionPool.free_items)
        self.assertEqual(len(set(taken)), rpc.ConnectionPool.max_size)

    def test_6_has_another_which_is_used_in_turn(self):
        self.stubs = None
        one, two = rpc.ConnectionPool.get(), rpc.ConnectionPool.get()
        rpc.ConnectionPool.put(one)
        rpc.ConnectionPool.put(two)
        self.assertTrue(rpc.ConnectionPool.get() is one)
"""


def test_the_test_base_of_diablo(tmp_path):
    write(tmp_path, test_it=f"{COMMON}\nclass RpcTest(Mixin, test.TestCase):\n{POOLS.replace('self.stubs = None', '')}")
    passes(tmp_path, "--nova-era", "diablo", passed=6)


def test_a_test_base_of_its_own(tmp_path):
    """It empties the fake broker after each test, and that is all it does."""
    base = "    def tearDown(self):\n        fakerabbit.reset_all()\n"
    write(tmp_path, test_it=f"{COMMON}\nclass RpcTest(Mixin, unittest.TestCase):\n{base}")
    passes(tmp_path, "--nova-era", "cactus", passed=4)


def test_consumers_that_a_test_leaves_at_the_router_end_with_it(tmp_path):
    write(
        tmp_path,
        test_it=f"""{COMMON}
FLAGS.set_default("rpc_backend", "nova.rpc.impl_kombu")

def connection(proxy, topic="compute"):
    conn = rpc.create_connection(new=True)
    conn.create_consumer(topic, proxy, fanout=False)
    conn.consume_in_thread()
    return conn

def add(topic="compute"):
    return rpc.call(ctxt, topic, {{"method": "add", "args": {{"a": 1, "b": 2}}}})

class RpcTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.shared = connection(Manager(), "shared")

    @classmethod
    def tearDownClass(cls):
        cls.shared.close()

    def test_1_leaves_a_consumer(self):
        connection(NeverCalled())
        self.assertEqual(add("shared"), 3)

    def test_2_does_not_meet_it(self):
        connection(Manager())
        self.assertEqual([add() for _ in range(6)], [3] * 6)
        self.assertEqual(add("shared"), 3)
""",
    )
    passes(tmp_path, "--nova-era", "essex", passed=2)


def test_a_base_with_an_underscore_is_no_test(tmp_path):
    write(
        tmp_path,
        test_it="""
from nova import rpc, test
class _BaseTest(test.TestCase):
    def test_it(self):
        assert self.rpc is rpc
class RpcTest(_BaseTest):
    rpc = rpc
""",
    )
    passes(tmp_path, passed=1)


def test_the_options_are_on_the_flags_of_the_tree(tmp_path):
    """Though another configuration object is loaded before them, and may be registered again."""
    flags = """
from nova.openstack.common import cfg
FLAGS = cfg.CommonConfigOpts()
FLAGS.register_opt(cfg.StrOpt("control_exchange", default="mine", help="of the tree"))
"""
    write(
        tmp_path,
        nova__="",
        nova__context="overwrite = None",
        nova__flags=flags,
        nova__exception="from nova import log\nclass NovaException(Exception): pass",
        test_it="""
from nova import rpc
import nova.notifier.api, nova.notifier.rabbit_notifier
from nova import flags, log
def test_it():
    FLAGS = flags.FLAGS
    FLAGS.register_opts(rpc.rpc_opts)
    FLAGS.set_default("rpc_backend", "nova.rpc.impl_fake")
    assert rpc._get_impl().__name__ == "nova.rpc.impl_fake"
    assert FLAGS.control_exchange == "mine"
    assert FLAGS.notification_topics == ["notifications"]
    assert FLAGS.publish_errors is False
""",
    )
    passes(tmp_path, passed=1)
