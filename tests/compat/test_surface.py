"""The surface of each era, as a table: what programs import, and the forms in which they call it.

A line is a module and what is taken from it. ``name(a, b, c=)`` must be callable with that many arguments by
position and those by name; ``name`` alone must be there.
"""

from __future__ import annotations

import ast
import json
import sys
import textwrap

import pytest
from gevent import subprocess

VERBS = "call(ctxt, topic, msg) multicall(ctxt, topic, msg) cast(ctxt, topic, msg) fanout_cast(ctxt, topic, msg)"
TIMED = "call(ctxt, topic, msg, timeout) call(ctxt, topic, msg, timeout=) multicall(ctxt, topic, msg, timeout)"
SERVERS = "cast_to_server(ctxt, params, topic, msg) fanout_cast_to_server(ctxt, params, topic, msg)"
CONF_FIRST = (
    "call(conf, ctxt, topic, msg, timeout) call(conf, ctxt, topic, msg) multicall(conf, ctxt, topic, msg, timeout) "
    "cast(conf, ctxt, topic, msg) fanout_cast(conf, ctxt, topic, msg) notify(conf, ctxt, topic, msg) "
    "cast_to_server(conf, ctxt, params, topic, msg) fanout_cast_to_server(conf, ctxt, params, topic, msg) "
    "create_connection(conf, new=) create_connection(conf, new) cleanup()"
)
CONNECTION = (
    "Connection.create_consumer(self, topic, proxy, fanout) Connection.create_consumer(self, topic, proxy, fanout=) "
    "Connection.consume_in_thread(self) Connection.close(self) Connection.__enter__ Connection.__exit__"
)
RAW = (
    "Connection.declare_topic_consumer(self, topic, callback) "
    "Connection.declare_topic_consumer(self, topic, callback, queue_name=) "
    "Connection.declare_direct_consumer(self, topic, callback) "
    "Connection.declare_fanout_consumer(self, topic, callback) Connection.topic_send(self, topic, msg) "
    "Connection.direct_send(self, msg_id, msg) Connection.fanout_send(self, topic, msg) "
    "Connection.notify_send(self, topic, msg) Connection.iterconsume(self, limit=, timeout=) "
    "Connection.consume(self, limit=) Connection.reset(self) Connection.pool"
)
CLASSES = (
    "Connection.instance(new=) Connection.instance() Connection.recreate() Consumer(connection=) "
    "Consumer.fetch(self) Consumer.register_callback(self, callback) Consumer.attach_to_eventlet(self) "
    "Consumer.close(self) AdapterConsumer(connection=, topic=, proxy=) TopicAdapterConsumer(connection=, topic=, proxy=) "
    "FanoutAdapterConsumer(connection=, topic=, proxy=) TopicPublisher(connection=, topic=) TopicPublisher(conn, topic) "
    "FanoutPublisher(topic, connection=) DirectConsumer(connection=, msg_id=) DirectPublisher(connection=, msg_id=) "
    "msg_reply(msg_id, reply, failure) RemoteError(kind, value, traceback)"
)
COMMON = (
    "RemoteError(kind, value, traceback) RPCException(message) RPCException(message=) Timeout() "
    "InvalidRPCConnectionReuse() Connection _safe_log(log, msg, data)"
)
PROXY = (
    "RpcProxy(topic, version) RpcProxy.call(self, ctxt, msg, topic, version, timeout) RpcProxy.multicall(self, ctxt, msg) "
    "RpcProxy.cast(self, ctxt, msg, topic=, version=) RpcProxy.fanout_cast(self, ctxt, msg, version=) "
    "RpcProxy.cast_to_server(self, ctxt, params, msg) RpcProxy.fanout_cast_to_server(self, ctxt, params, msg)"
)
MATCHMAKER = "MatchMakerRing(ring) MatchMakerLocalhost() MatchMakerLocalhost.queues(self, key)"
CONTEXT = (
    "RequestContext.to_dict(self) RequestContext.from_dict(values) RequestContext.elevated(self) get_admin_context()"
)

ESSEX = {
    "nova.rpc": f"{VERBS} {TIMED} {SERVERS} create_connection(new=) notify(ctxt, topic, msg) cleanup() "
    "queue_get_for(ctxt, topic, host) _get_impl() common.RemoteError LOG",
    "nova.rpc.common": COMMON,
    "nova.rpc.amqp": "unpack_context(msg) pack_context(msg, ctxt) RpcContext ProxyCallback(proxy, pool) MulticallWaiter "
    "Pool(max_size=, order_as_stack=) ConnectionContext(pool, pooled=) msg_reply(msg_id, pool, reply, failure, ending)",
    **{
        f"nova.rpc.{driver}": f"{VERBS} {TIMED} create_connection(new=) notify(ctxt, topic, msg) cleanup() {CONNECTION} {RAW}"
        for driver in ("impl_carrot", "impl_kombu", "impl_qpid")
    },
    "nova.rpc.impl_fake": f"{VERBS} {TIMED} create_connection(new=) notify(ctxt, topic, msg) cleanup() CONSUMERS Connection",
    "nova.context": f"{CONTEXT} RequestContext.update_store(self)",
    "nova.flags": "FLAGS FLAGS.set_override(name, value) FLAGS.register_opts(opts) FLAGS.register_opt(opt)",
    "nova.openstack.common.cfg": "StrOpt(name, default=, help=) IntOpt(name, default=) BoolOpt(name, default=) ListOpt(name)",
    "nova.exception": "NovaException Error NotFound InstanceNotFound(instance_id=)",
    "nova.log": "getLogger(name) setup()",
    "nova.local": "store",
    "nova.utils": "import_class(name) import_object(name) utcnow() LoopingCall to_primitive(value) dumps(value) loads(text)",
    "nova.test": "TestCase TestingException skip_test skip_if skip_unless",
}
FOLSOM = {
    "nova.rpc": f"{ESSEX['nova.rpc']} rpc_opts",
    "nova.rpc.common": f"{COMMON} UnsupportedRpcVersion(version=) CommonRpcContext serialize_remote_exception(exc_info) "
    "deserialize_remote_exception(conf, data)",
    "nova.rpc.amqp": "unpack_context(conf, msg) pack_context(msg, ctxt) RpcContext ProxyCallback(conf, proxy, pool) "
    "MulticallWaiter Pool(conf, cls) ConnectionContext(conf, pool, pooled=, server_params=) get_connection_pool(conf, cls)",
    **{
        f"nova.rpc.{driver}": f"{CONF_FIRST} {CONNECTION} {RAW} Connection.create_worker(self, topic, proxy, pool_name)"
        for driver in ("impl_carrot", "impl_kombu", "impl_qpid", "impl_zmq")
    },
    "nova.rpc.impl_fake": f"{CONF_FIRST} CONSUMERS Connection",
    "nova.rpc.dispatcher": "RpcDispatcher(callbacks) RpcDispatcher.dispatch(self, ctxt, version, method, a=)",
    "nova.rpc.proxy": f"{PROXY} RpcProxy.make_msg(method, a=)",
    "nova.rpc.matchmaker": MATCHMAKER,
    "nova.openstack.common.jsonutils": "dumps(value) loads(text) to_primitive(value)",
    "nova.openstack.common.local": "store",
    "nova.openstack.common.timeutils": "utcnow() isotime() parse_isotime(text) strtime() parse_strtime(text)",
    "nova.openstack.common.importutils": "import_class(name) import_object(name) import_module(name)",
}


def moved(surface: dict[str, str]) -> dict[str, str]:
    """As it was called from 2012.2 on, too."""
    return surface | {name.replace("nova.rpc", "nova.openstack.common.rpc"): names for name, names in surface.items()}


GRIZZLY = moved(FOLSOM) | {
    "nova.openstack.common.rpc": f"{VERBS} {TIMED} {SERVERS} call(ctxt, topic, msg, timeout, lock) "
    "call(ctxt, topic, msg, check_for_lock=) notify(ctxt, topic, msg, envelope) create_connection(new=) cleanup() "
    "queue_get_for(ctxt, topic, host) set_defaults(control_exchange) rpc_opts _get_impl()",
    "nova.openstack.common.rpc.common": f"{FOLSOM['nova.rpc.common']} DuplicateMessageError(msg_id=) "
    "UnsupportedRpcEnvelopeVersion(version=) ClientException client_exceptions(cls) version_is_compatible(a, b) "
    "serialize_msg(msg) deserialize_msg(msg) catch_client_exception(classes, func, a, b=)",
    "nova.openstack.common.rpc.impl_kombu": f"{FOLSOM['nova.rpc.impl_kombu']} "
    "Connection.join_consumer_pool(self, callback, pool_name, topic, exchange_name)",
    "oslo.config.cfg": "CONF CONF.register_opts(opts) StrOpt(name, default=, help=) IntOpt(name)",
    "nova.openstack.common.rpc.service": "Service(host, topic) Service(host, topic, manager=)",
}
HAVANA = GRIZZLY | {
    "nova.openstack.common.rpc.common": f"{GRIZZLY['nova.openstack.common.rpc.common']} RpcVersionCapError(version_cap=) "
    "Timeout(info, topic, method)",
    "nova.openstack.common.rpc.dispatcher": "RpcDispatcher(callbacks) RpcDispatcher(callbacks, serializer=) "
    "RpcDispatcher.dispatch(self, ctxt, version, method, namespace, a=)",
    "nova.openstack.common.rpc.proxy": f"{PROXY} RpcProxy(topic, version, version_cap=, serializer=) "
    "RpcProxy.make_msg(self, method, a=) RpcProxy.make_namespaced_msg(method, namespace, a=) "
    "RpcProxy.can_send_version(self, version) RpcProxy.RPC_API_NAMESPACE",
    "nova.openstack.common.rpc.serializer": "NoOpSerializer() Serializer",
    "nova.rpcclient": "RpcProxy(topic, version) RpcProxy.get_client(self, namespace=, server_params=)",
    "nova.baserpc": "BaseAPI(topic) BaseRPCAPI(service_name, backdoor_port)",
}
SURFACE = {
    "cactus": {
        "nova.rpc": f"call(ctxt, topic, msg) cast(ctxt, topic, msg) fanout_cast(ctxt, topic, msg) {CLASSES}",
        "nova.flags": "FLAGS DEFINE_string(name, default, help) DEFINE_integer(name, default, help) "
        "DEFINE_bool(name, default, help) DECLARE(name, module) FLAGS.Reset() FLAGS.FlagValuesDict()",
        "nova.context": CONTEXT,
        "nova.exception": "Error NotFound ApiError",
        "nova.log": "getLogger(name)",
        "nova.utils": "import_class(name) import_object(name) utcnow() LoopingCall",
        "nova.test": "TestCase",
    },
    "diablo": {
        "nova.rpc": f"{VERBS} {CLASSES} Pool(max_size=, order_as_stack=) ConnectionPool ConsumerSet(connection=, consumer_list=) "
        "ConsumerSet.wait(self, limit) create_connection(new=) create_consumer(conn, topic, proxy, fanout=) "
        "create_consumer_set(conn, consumers) get_impl()",
        "nova.rpc.amqp": f"{VERBS} create_connection(new=) create_consumer(conn, topic, proxy, fanout) "
        "create_consumer_set(conn, consumers)",
        "nova.rpc.impl_carrot": f"{VERBS} create_connection(new=) {CONNECTION}",
        "nova.rpc.impl_kombu": f"{VERBS} create_connection(new=) {CONNECTION} {RAW}",
        "nova.rpc.common": "RemoteError(kind, value, traceback)",
        "nova.flags": "FLAGS DEFINE_string(name, default, help) DECLARE(name, module)",
        "nova.context": CONTEXT,
        "nova.test": "TestCase",
    },
    "essex": ESSEX,
    "folsom": FOLSOM,
    "grizzly": GRIZZLY,
    "havana": HAVANA,
}

#: Run in a process of its own: says what is missing, and what cannot be called so.
WALK = """
import importlib, inspect, json, sys
import compat.nova
era = sys.argv[1]
compat.nova.install(era=era)
CONF_FIRST = ("folsom", "grizzly", "havana")
faults = []
for module, forms in json.load(sys.stdin).items():
    found = importlib.import_module(module)
    for name, places, words in forms:
        try:
            value = found
            for part in name.split("."):
                value = getattr(value, part)
            if places is not None:
                assert callable(value), "cannot be called"
                # The drivers add the configuration where it is left out.
                left_out = era not in CONF_FIRST and hasattr(value, "__wrapped__")
                inspect.signature(value).bind(*[None] * (places + left_out), **dict.fromkeys(words))
        except (AttributeError, TypeError, AssertionError) as error:
            faults.append(f"{module}.{name}: {error}")
print(json.dumps(faults))
"""


def forms(names: str) -> list[tuple[str, int | None, list[str]]]:
    """(name, arguments by position, arguments by name) of each; None where it is not called."""
    made: list[tuple[str, int | None, list[str]]] = []
    for text in names.replace("=,", "=0,").replace("=)", "=0)").replace(", ", ",").split():
        node = ast.parse(text, mode="eval").body
        if isinstance(node, ast.Call):
            made.append((ast.unparse(node.func), len(node.args), [str(word.arg) for word in node.keywords]))
        else:
            made.append((text, None, []))
    return made


@pytest.mark.parametrize("era", SURFACE)
def test_the_surface_is_whole(era: str) -> None:
    table = {module: forms(names) for module, names in SURFACE[era].items()}
    assert all(table.values())
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(WALK), era],
        input=json.dumps(table).encode(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=60,
        check=False,
    )
    said = done.stdout.decode()
    assert done.returncode == 0, said
    assert json.loads(said.splitlines()[-1]) == []


def test_the_walk_sees_what_is_missing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(WALK), "essex"],
        input=json.dumps({"nova.rpc": forms("call(a) nothing call(a, b, c, nonsense=)")}).encode(),
        stdout=subprocess.PIPE,
        timeout=60,
        check=True,
    )
    assert len(json.loads(done.stdout)) == 3
