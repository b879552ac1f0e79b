"""The semantics of calls, casts and replies: one service, one caller, in the eras that answer differently."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from tests.compat.across.interpreter import Interpreter, Raised

pytestmark = pytest.mark.integration

CALLER = """
from nova import context
ctxt = context.get_admin_context()
def call(rpc_method, topic, timeout=10, **args):
    return rpc.call(ctxt, topic, {"method": rpc_method, "args": args}, timeout)
def multicall(rpc_method, topic, timeout=10, **args):
    return rpc.multicall(ctxt, topic, {"method": rpc_method, "args": args}, timeout)
def cast(rpc_method, topic, **args):
    rpc.cast(ctxt, topic, {"method": rpc_method, "args": args})
"""
FRONT = {
    "essex": "from nova import rpc; from nova.rpc import amqp, common, impl_kombu",
    "folsom": "from nova import rpc; from nova.rpc import amqp, common, impl_kombu",
    "havana": "from nova.openstack.common import rpc; from nova.openstack.common.rpc import amqp, common, impl_kombu",
}
STYLES = {"essex": "essex", "folsom": "folsom", "havana": "common"}


class Site(NamedTuple):
    era: str
    service: Interpreter
    caller: Interpreter
    topic: str

    def run(self, code: str, timeout: float = 20.0, **names: Any) -> Any:
        """Run ``code`` at the caller."""
        return self.caller.run(code, timeout, topic=self.topic, **names)

    def error(self, code: str, **names: Any) -> Raised:
        """The exception that ``code`` raises at the caller."""
        with pytest.raises(Raised) as raised:
            self.run(code, **names)
        return raised.value


@pytest.fixture(scope="module", params=list(STYLES))
def processes(program: Callable[..., Interpreter], request: pytest.FixtureRequest) -> tuple[str, list[Interpreter]]:
    front = FRONT[request.param]
    started = [program(request.param, f"{front}\nimport services"), program(request.param, front + CALLER)]
    return request.param, [each.ready() for each in started]


@pytest.fixture
def site(processes: tuple[str, list[Interpreter]], topic: str) -> Iterator[Site]:
    """A manager that has seen nothing serves ``topic``."""
    era, (service, caller) = processes
    serve = f"manager = type(manager)(); stop = services.{STYLES[era]}(topic, 'h', manager)"
    service.run(serve, topic=topic)
    yield Site(era, service, caller, topic)
    service.run("stop()")


# --- values --------------------------------------------------------------------------------------


def test_a_call_gives_the_last_value(site):
    assert site.run("call('count', topic, n=3)") == 2
    assert site.run("call('reply', topic, values=['a', 'b'])") == "b"
    assert site.run("call('count', topic, n=0)") is None


def test_none_is_an_item(site):
    assert site.run("list(multicall('nones', topic, n=3))") == [None] * 3
    assert site.run("list(multicall('reply', topic, values=[1, None, 2, None]))") == [1, None, 2, None]
    assert site.run("call('reply', topic, values=[1, None])") is None


def test_a_method_that_gives_none(site):
    """A value of None, or none: the call gives None; after replies there is no further value."""
    assert site.run("call('note', topic, value=1)") is None
    assert site.run("list(multicall('note', topic, value=1))") == [None]
    assert site.run("list(multicall('reply', topic, values=[1]))") == [1]


def test_replies_come_while_the_handler_runs(site):
    site.service.run("""
        def stepwise(context):
            for step in "abc":
                manager.seen.append(step)
                context.reply(step)
                manager.gate(step).wait()
        manager.stepwise = stepwise
        """)  # fmt: skip
    site.run("replies = iter(multicall('stepwise', topic))")
    for step in "abc":
        assert site.run("next(replies)") == step
        assert site.service.run("manager.seen[-1]") == step
        site.service.run(f"manager.gate({step!r}).set()")
    assert site.error("next(replies)").kind == "StopIteration"


def test_what_is_replied_after_the_ending_is_dropped(site):
    assert site.run("list(multicall('reply_past_the_end', topic, values=[1, 2]))") == [1, 2]
    assert site.run("call('reply_past_the_end', topic, values=[1, 2])") == 2
    assert site.run("call('reply_past_the_end', topic, values=[])") is None


def test_values_of_all_kinds_arrive(site):
    value = {"text": "ü\u20ac\0", "list": [1, 2.5, None, True], "dict": {"a": {"b": []}}, "big": 2**63, "empty": ""}
    assert site.run("call('echo', topic, value=value)", value=value) == value
    # As JSON has it.
    assert site.run("call('echo', topic, value=(1, 2))") == [1, 2]
    assert site.run("call('echo', topic, value={1: 2})") == {"1": 2}


def test_the_callers_message_is_as_it_was(site):
    code = """
    message = {"method": "echo", "args": {"value": [1]}}
    rpc.call(ctxt, topic, message, 10)
    sorted(message.items())
    """
    assert site.run(code) == [("args", {"value": [1]}), ("method", "echo")]


def test_a_generator_under_a_cast_runs_to_its_end(site):
    site.run("cast('note_each', topic, n=4)")
    site.service.until("manager.seen", [0, 1, 2, 3, "end"])


def test_a_generator_that_raises_gives_what_it_had(site):
    site.run("got = []")
    raised = site.error("for item in multicall('count_and_fail', topic, n=2): got.append(item)")
    assert "after the last" in raised.text
    assert site.run("got") == [0, 1]


def test_a_multicall_that_nobody_iterates_is_run_nevertheless(site):
    site.run("unused = multicall('note', topic, value='run')")
    site.service.until("manager.seen", ["run"])


# --- time ----------------------------------------------------------------------------------------


def test_the_timeout_is_counted_for_each_reply(site):
    assert site.run("list(multicall('slow_count', topic, 0.9, n=3, seconds=0.35))") == [0, 1, 2]


def test_a_call_times_out_by_its_argument_or_the_option(site):
    raised = site.error("call('wait', topic, 0.1, gate='g')")
    assert raised.kinds[0].endswith("rpc.common.Timeout")
    conf = "oslo.config.cfg import CONF" if site.era == "havana" else "nova.flags import FLAGS"
    site.run(f"from {conf} as conf\nconf.set_override('rpc_response_timeout', 0.1)")
    try:
        assert site.error("call('wait', topic, None, gate='g')").kind == "Timeout"
    finally:
        site.run("conf.clear_override('rpc_response_timeout')" if site.era == "havana" else "conf.reset()")
    site.service.run("manager.gate('g').set()")


def test_late_replies_are_dropped_and_the_connection_is_usable(site):
    for gate in ("a", "b"):
        assert site.error(f"call('wait', topic, 0.1, gate={gate!r}, value='late')").kind == "Timeout"
    assert site.run("call('add', topic, a=1, b=1)") == 2
    site.service.run("[manager.gate(gate).set() for gate in 'ab']")
    site.service.until("sorted(manager.seen)", [("passed", "a"), ("passed", "b")])
    assert site.run("[call('add', topic, a=n, b=0) for n in range(5)]") == [0, 1, 2, 3, 4]
    assert site.run("list(multicall('count', topic, n=3))") == [0, 1, 2]


def test_a_topic_without_consumer_times_out(site):
    raised = site.error("call('add', topic + '.nobody', 0.1, a=1, b=1)")
    assert raised.kind == "Timeout"


def test_a_service_whose_handler_still_runs_may_be_stopped_and_started(site):
    waiting = site.caller.start("call('wait', topic, gate='g', value='done')", topic=site.topic)
    site.service.until("manager.started", ["g"])
    site.service.run("stop()")
    site.service.run(f"stop = services.{STYLES[site.era]}(topic, 'h', manager)", topic=site.topic)
    assert site.run("call('add', topic, a=1, b=1)") == 2
    site.service.run("manager.gate('g').set()")
    assert site.caller.result(waiting) == "done"


def test_each_message_has_a_green_thread_of_its_own(site):
    calls = [site.caller.start("call('wait', topic, gate='g')", topic=site.topic) for _ in range(5)]
    site.run("for _ in range(5): cast('wait', topic, gate='g')")
    site.service.until("len(manager.started)", 10)
    site.run("call('open', topic, gate='g')")
    for each in calls:
        site.caller.result(each)
    site.service.until("len(manager.seen)", 10)


def test_a_handler_may_call_its_own_topic(site):
    assert site.run("call('ask', topic, where=topic, what='add', args={'a': 1, 'b': 2})") == 3


def test_a_timeout_in_a_handler_is_told_to_the_caller(site):
    raised = site.error("call('ask', topic, where=topic + 'x', what='add', args={}, seconds=0.1)")
    if site.era == "essex":
        assert raised.attributes["exc_type"] == "Timeout"
    assert "imeout" in raised.text


# --- poison --------------------------------------------------------------------------------------

POISON = """
original = amqp.unpack_context
def unpack_context(*args):
    amqp.unpack_context = original
    raise RuntimeError("poison")
amqp.unpack_context = unpack_context
"""


def test_a_message_that_cannot_be_unpacked_is_not_answered_and_stops_nothing(site):
    site.service.run(POISON)
    assert site.error("call('add', topic, 0.3, a=1, b=1)").kind == "Timeout"
    assert site.run("call('add', topic, a=1, b=1)") == 2
    site.service.run(POISON)
    site.run("cast('note', topic, value='poisoned'); cast('note', topic, value='good')")
    site.service.until("manager.seen", ["good"])
    assert "poison" in site.service.said()


def raw(site: Site, message: object) -> None:
    """Send ``message`` as it is."""
    conf = "rpc._conf()" if site.era != "essex" else "()"
    site.run(f"conn = impl_kombu.Connection(*{conf}); conn.topic_send(topic, message)", message=message)


def test_what_is_no_message_at_all_stops_nothing(site):
    nonsense: Any
    for nonsense in ("text", 7, None, [], {}, {"method": 7}, {"method": "note", "args": "text"}, {"args": {}}):
        raw(site, nonsense)
    assert site.run("call('add', topic, a=1, b=1)") == 2


# --- wrong requests ------------------------------------------------------------------------------


def test_a_call_without_method_is_told_so(site):
    said = site.run("rpc.call(ctxt, topic, {'args': {'a': 1}}, 10)")
    assert said.startswith("No method for message")
    site.run("rpc.cast(ctxt, topic, {'args': {}})")
    assert site.run("call('add', topic, a=1, b=1)") == 2


def test_wrong_arguments_are_an_error_at_the_caller(site):
    for args in ("a=1", "a=1, b=1, c=1"):
        raised = site.error(f"call('add', topic, {args})")
        if site.era != "havana":
            assert raised.attributes["exc_type"] == "TypeError"
        assert "argument" in raised.text
    assert site.run("call('add', topic, a=1, b=1)") == 2


def test_arguments_that_cannot_be_sent_are_an_error_at_the_caller(site):
    for verb in ("call", "cast"):
        raised = site.error(f"{verb}('note', topic, value={{'list': [1, object()]}})")
        assert raised.kind == "TypeError"
        assert "args.value.list[1]" in raised.text
    raised = site.error("ctxt.thing = object(); rpc.call({'thing': object()}, topic, {'method': 'note'}, 10)")
    assert raised.kind == "TypeError" and "thing" in raised.text
    assert site.run("call('add', topic, a=1, b=1)") == 2
    assert site.service.run("manager.seen") == []


def test_a_result_that_cannot_be_sent_is_an_error_at_the_caller(site):
    raised = site.error("call('unserializable', topic)")
    assert raised.kind == ("TypeError" if site.era == "havana" else "RemoteError")
    assert "thing" in raised.text
    assert site.error("list(multicall('unserializable', topic))").text.startswith(raised.text[:20])
    assert site.error("call('reply_a_thing', topic)").kind != "Timeout"


def test_a_failure_may_be_replied(site):
    site.service.run("""
        import sys
        def reply_failure(context):
            try:
                raise ValueError("replied")
            except ValueError:
                context.reply(failure=sys.exc_info())
        manager.reply_failure = reply_failure
        """)  # fmt: skip
    raised = site.error("call('reply_failure', topic)")
    assert "replied" in raised.text
    assert site.run("call('add', topic, a=1, b=1)") == 2


# --- duplicates and envelopes --------------------------------------------------------------------


def test_a_message_that_comes_again_is_skipped(site):
    """By its ``_unique_id``, of which a consumer remembers the last sixteen."""
    for number in (1, 1, 2, 1):
        raw(site, {"method": "note", "args": {"value": number}, "_unique_id": f"id{number}"})
    raw(site, {"method": "note", "args": {"value": "end"}})
    site.service.until("manager.seen", [1, 2, "end"])
    for number in range(16):
        raw(site, {"method": "note", "args": {"value": "x"}, "_unique_id": f"other{number}"})
    raw(site, {"method": "note", "args": {"value": "forgotten"}, "_unique_id": "id1"})
    site.service.until("manager.seen[-1]", "forgotten")
    assert site.run("call('add', topic, a=1, b=1)") == 2


def test_a_message_may_have_keys_that_nobody_knows(site):
    """As in Nova, by each of the ways to send one."""
    raw(site, {"method": "note", "args": {"value": "cast"}, "priority": 7})
    site.run("rpc.cast(ctxt, topic, {'method': 'note', 'args': {'value': 'verb'}, 'arg': 1, 'other': None})")
    site.service.until("manager.seen", ["cast", "verb"])
    assert site.run("rpc.call(ctxt, topic, {'method': 'add', 'args': {'a': 1, 'b': 1}, 'priority': 7}, 10)") == 2


def envelope(version: str, text: str) -> dict[str, str]:
    return {"oslo.version": version, "oslo.message": text}


def test_an_envelope_is_opened(site):
    raw(site, envelope("2.0", '{"method": "note", "args": {"value": "inside"}, "_context_is_admin": true}'))
    site.service.until("manager.seen", ["inside"])


def test_an_envelope_of_another_version_is_refused_and_stops_nothing(site):
    for version in ("3.0", "1.0", "2.1", "nonsense"):
        raw(site, envelope(version, '{"method": "note", "args": {"value": "refused"}}'))
    raw(site, envelope("2.0", "no JSON"))
    site.run("cast('note', topic, value='end')")
    site.service.until("manager.seen", ["end"])
    assert any("UnsupportedRpcEnvelopeVersion" in line and "3.0" in line for line in site.service.lines)


# --- exceptions ----------------------------------------------------------------------------------


def test_an_exception_of_novas(site):
    site.service.run("""
        from nova import exception
        def missing(context):
            raise exception.InstanceNotFound(instance_id=42)
        manager.missing = missing
        """)  # fmt: skip
    raised = site.error("call('missing', topic)")
    if site.era == "essex":
        assert raised.kinds[0] == "nova.rpc.common.RemoteError"
        assert raised.attributes["exc_type"] == "InstanceNotFound"
        assert "42" in raised.attributes["value"]
    else:
        assert raised.kinds[:2] == ["nova.exception.InstanceNotFound_Remote", "nova.exception.InstanceNotFound"]
        assert "42" in raised.text and "Traceback" in raised.text and "in missing" in raised.text
        assert raised.attributes["kwargs"]["instance_id"] == 42


def test_an_exception_of_a_module_that_is_not_allowed(site):
    site.service.run("""
        import decimal
        def forbidden(context):
            raise decimal.DivisionByZero("not yours")
        manager.forbidden = forbidden
        """)  # fmt: skip
    raised = site.error("call('forbidden', topic)")
    assert raised.kind == "RemoteError"
    assert (raised.attributes["exc_type"], raised.attributes["value"]) == ("DivisionByZero", "not yours")
    assert "Traceback" in "".join(raised.attributes["traceback"])


def test_a_builtin_exception(site):
    raised = site.error("call('fail', topic, text='42')")
    if site.era == "havana":
        assert raised.kind == "ValueError" and raised.text.startswith("42\nTraceback")
    else:
        assert (raised.kind, raised.attributes["exc_type"]) == ("RemoteError", "ValueError")
        assert int(raised.attributes["value"]) == 42


def test_an_exception_that_is_the_callers_fault_is_sent_and_not_logged(site):
    site.service.run("""
        @common.client_exceptions(KeyError)
        def faulty(context, key):
            raise KeyError(key)
        manager.faulty = faulty
        """)  # fmt: skip
    raised = site.error("call('faulty', topic, key='expected-by-the-service')")
    assert "expected-by-the-service" in raised.text
    if site.era != "havana":
        assert raised.attributes["exc_type"] == "KeyError"
    site.error("call('fail', topic, text='logged-by-the-service')")
    assert any("logged-by-the-service" in line for line in site.service.lines)
    assert not any("expected-by-the-service" in line for line in site.service.lines)


@pytest.mark.parametrize("kind", ["gevent.GreenletExit", "gevent.Timeout"])
def test_what_is_no_exception_ends_its_handler_alone(site, kind):
    """A handler that leaves by one of these takes neither the service nor the caller with it."""
    site.service.run(f"""
        import gevent
        def leave(context):
            raise {kind}()
        manager.leave = leave
        """)  # fmt: skip
    site.error("call('leave', topic, 2)")
    assert site.run("call('add', topic, a=1, b=1)") == 2


# --- the context of a green thread ---------------------------------------------------------------


def test_the_context_of_one_message_is_cleared_before_the_next(site):
    """Looked at where the next one is unpacked, in the one green thread that consumes both."""
    module = "nova.local" if site.era == "essex" else "nova.openstack.common.local"
    dispatcher = "lambda manager: importlib.import_module('nova.rpc.dispatcher').RpcDispatcher([manager])"
    proxy = "lambda manager: manager" if site.era == "essex" else dispatcher
    code = f"""
    import importlib
    local = importlib.import_module({module!r})
    proxy = {proxy}
    original, found = amqp.unpack_context, []
    kept = []

    def unpack_context(*args):
        found.append(getattr(local.store, "context", None) is None)
        return original(*args)

    def keep(context, value):
        kept.append(context)
        found.append(getattr(local.store, "context", None) is not None)

    manager.keep = keep
    amqp.unpack_context = unpack_context
    own = rpc.create_connection(new=True)
    own.create_consumer(topic, proxy(manager))
    own.consume(limit=2)
    amqp.unpack_context = original
    own.close()
    found
    """
    consuming = site.service.start(code, topic=f"{site.topic}.own")
    site.run("[cast('keep', topic + '.own', value=n) for n in range(2)]")
    assert site.service.result(consuming) == [True, True, True, True]


def test_the_context_of_the_handler_is_the_callers(site):
    sent, received = site.run("ctxt.to_dict(), call('who', topic)")
    assert received == sent


# --- failures of calls that a handler makes ------------------------------------------------------

NESTED = """
runs = []
def nested(context, topic="nobody"):
    runs.append(topic)
    return rpc.call(context, topic, {"method": "run", "args": {}}, 0.2)
manager.nested = nested
"""


def test_a_timeout_of_a_handlers_own_call_is_not_the_callers(site):
    site.service.run(NESTED)
    error = site.error("call('nested', topic)")
    assert error.kind == "RemoteError" and error.attributes["exc_type"] == "Timeout"
    assert not any(kind.endswith(".Timeout") for kind in error.kinds)
    assert site.service.run("runs") == ["nobody"]


def test_who_allows_the_module_of_timeout_gets_it_rebuilt_as_nova_did(site):
    if site.era != "folsom":
        pytest.skip("to Essex nothing was rebuilt; Havana's rebuilding does not fit the constructor of Timeout")
    site.service.run(NESTED)
    site.run(
        """
        from compat.nova import options
        before = options.value
        def allowing(name, conf=None):
            return ["nova.rpc.common"] if name == "allowed_rpc_exception_modules" else before(name, conf)
        options.value = allowing
        """
    )
    try:
        error = site.error("call('nested', topic)")
    finally:
        site.run("options.value = before")
    assert error.kind == "Timeout_Remote"


def test_a_native_caller_of_a_legacy_service_runs_it_once(site, router):
    from rpcmq import Address, Client, Retry
    from rpcmq.errors import RemoteError

    site.service.run(NESTED)
    to = Address(site.topic, "", "nova")
    with Client(router) as client, pytest.raises(RemoteError) as raised:
        client.call({}, to, {"method": "nested", "args": {}}, timeout=10, retry=Retry(3, base=0.001))
    assert raised.value.exc_type.endswith("rpc.common.Timeout")
    assert site.service.run("runs") == ["nobody"]


def test_a_legacy_caller_of_a_native_service_gets_a_remote_error(site, router):
    from rpcmq import Address, Client, Service

    class Scheduler:
        def forward(self, ctx: Any) -> Any:
            return client.call(ctx, Address("nobody", "", "nova"), {"method": "run", "args": {}}, mandatory=True)

    with Client(router) as client, Service(f"{site.topic}-native", Scheduler(), client=client, exchange="nova"):
        error = site.error("call('forward', topic + '-native')")
    assert (error.kind, error.attributes["exc_type"]) == ("RemoteError", "NoConsumer")


def test_a_method_that_exits_ends_its_own_call_only(site: Site):
    error = site.error('call("exit", topic, code=3)')
    assert "SystemExit" in error.text and "3" in error.text
    site.run('cast("exit", topic, code=3)')
    assert site.run('call("add", topic, a=1, b=2)') == 3
