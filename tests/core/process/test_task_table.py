from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcmq.core.common.stream_credit import UNASKED_ITEMS as STREAM_WINDOW
from rpcmq.core.process.settlements import wire_microseconds
from rpcmq.core.process.task import Registration, free_tag, registration_for
from rpcmq.core.process.task_states import TaskState
from rpcmq.errors import Outcome, UsageError
from rpcmq.wire import KIND_AT, NO_TTL, SETTLEMENT, Address, Flag, Kind, body_of, control, pack, parse, payload_of
from tests.core.process.serving import COMPUTE, Collected, Process


@pytest.fixture
def process() -> Process:
    return Process()


# --- registrations ------------------------------------------------------------------------------


def test_a_registration_tells_topic_and_credit(process):
    registration = Registration(3, COMPUTE, 64, "tcp://127.0.0.1:1", process.tasks.append)
    call = process.serving.register(0.0, registration, 5.0)
    (message,) = process.sent()
    header = parse(message)
    assert (header.kind, header.consumer, message[16:36]) == (Kind.REGISTER, 3, call.key)
    assert Address.decode(message[40 : 40 + header.address_length]) == COMPUTE
    assert body_of(message) == {"credit": 64, "peer_url": "tcp://127.0.0.1:1"}


def test_tags_are_used_again(process):
    first, second = process.register(0), process.register(1)
    assert free_tag(process.serving.registrations) == 2
    process.serving.remove(first)
    assert free_tag(process.serving.registrations) == 0
    process.serving.remove(second)


def test_tags_run_out(process):
    for tag in range(256):
        process.serving.registrations[tag] = Registration(tag, COMPUTE, 1, "", process.tasks.append)
    with pytest.raises(UsageError, match="256 registrations"):
        free_tag(process.serving.registrations)


def test_unregister(process):
    registration = process.register(1)
    call = process.serving.unregister(0.0, registration, 5.0)
    (message,) = process.sent()
    assert (message[5], message[11], message[16:36]) == (Kind.UNREGISTER, 1, call.key)


def test_after_a_restart_of_the_router_it_registers_again(process):
    process.register(0)
    process.register(1, Address("network", "node-7"))
    again = process.connect(2.0, boot=6)
    assert [(p[5], p[11]) for p in again] == [(Kind.REGISTER, 0), (Kind.REGISTER, 1)]
    assert process.connect(3.0, resumed=True) == again


def test_after_a_resume_it_does_not(process):
    process.register(0)
    base = process.uplink._sent_base + process.uplink.unacknowledged
    assert process.connect(2.0, resumed=True, received=base) == []


def test_a_registration_under_way_goes_on_after_a_restart(process):
    registration = Registration(0, COMPUTE, 2, "", process.tasks.append)
    call = process.serving.register(0.0, registration, 5.0)
    process.sent()
    again = process.connect(2.0, boot=6)
    (register,) = [p for p in again if p[5] == Kind.REGISTER]
    assert register[16:36] == call.key
    process.router(control(Kind.REGISTERED, {}, key=call.key))
    assert call.answer is not None


def test_one_who_is_leaving_does_not_register_again(process):
    registration = process.register(0)
    running = process.deliver()
    assert running is not None
    call = process.serving.unregister(0.0, registration, 5.0)
    process.sent()
    assert process.connect(2.0, boot=6) == []
    assert call.done and call.error is None


def test_a_registration_that_the_router_refuses_after_a_restart_is_told_and_can_be_tried_again(process):
    registration = process.register(0)
    (register,) = process.connect(2.0, boot=6)
    process.calls.changed.clear()
    process.router(control(Kind.ERROR, {"outcome": 7, "text": "no more topics"}, key=register[16:36]))
    (call,) = process.calls.changed
    call.waiter()
    ((told, error),) = process.refused
    assert told is registration and str(error) == "no more topics"
    process.serving.register_again(3.0, registration)
    assert [p[5] for p in process.sent()] == [Kind.REGISTER]
    process.serving.remove(registration)
    process.serving.register_again(4.0, registration)
    assert process.sent() == []


def test_one_that_was_refused_is_not_tried_again_once_another_router_was_asked(process):
    registration = process.register(0)
    (register,) = process.connect(2.0, boot=6)
    process.calls.changed.clear()
    process.router(control(Kind.ERROR, {"outcome": 7, "text": "of another router"}, key=register[16:36]))
    (call,) = process.calls.changed
    call.waiter()
    assert [told for told, _ in process.refused] == [registration]
    # Before it is tried again the process goes to another router, which takes it.
    assert [p[5] for p in process.connect(3.0, boot=7)] == [Kind.REGISTER]
    process.serving.register_again(4.0, registration)
    assert process.sent() == []


# --- tasks --------------------------------------------------------------------------------------


def test_a_delivery_becomes_a_task(process):
    registration = process.register(0)
    task = process.deliver(ttl=1500, flags=Flag.ACCEPTS_DILL, attempt=3, trace=b"trace", now=9.0)
    assert task is not None
    assert (task.method, bytes(task.payload), task.format, task.trace) == ("reboot", b"p", 2, b"trace")
    assert (task.is_call, task.attempt, task.ttl, task.received_at) == (True, 3, 1.5, 9.0)
    assert process.serving.answered_streams.credit_of(task).items == STREAM_WINDOW and task.state is TaskState.RUNNING
    assert registration.running == {task.key: task} and process.serving.running == 1


def test_a_large_payload_and_no_deadline(process):
    process.register(0)
    head: Any = pack(Kind.CAST, bytes(100_000), key=b"k" * 20, address=COMPUTE.encode(), ttl=NO_TTL)
    process.uplink.receive(0.0, bytes(head), [head.payload])
    (task,) = process.serving.delivered
    assert len(task.payload) == 100_000 and task.ttl is None and not task.is_call


def test_the_tag_tells_whose_it_is(process):
    first, second = process.register(0), process.register(1)
    task = process.deliver(consumer=1)
    assert task is not None and task.registration is second and not first.running


def test_a_delivery_for_nobody_is_counted(process):
    assert process.deliver(consumer=9) is None
    assert process.serving.counters == {"deliveries for an unknown consumer": 1}


def test_far_more_than_its_credit_is_not_taken_from_a_router(process):
    registration = process.register(credit=200)
    # One key again and again is as many tasks.
    tasks = [process.deliver(key=b"k" * 20 if n % 2 else bytes(12) + n.to_bytes(8)) for n in range(2000)]
    taken = [task for task in tasks if task is not None]
    assert len(taken) == 1600 == registration.unended and taken == tasks[:1600]
    assert process.uplink.discarded == {"credit": 400}
    for task in taken:
        process.serving.answer(1.0, task, Kind.REPLY, 1, b"1")
    assert registration.unended == 0 and process.deliver() is not None


def test_after_each_reconnect_a_router_may_deliver_its_credit_anew(process):
    registration = process.register(credit=1)
    tasks = []
    for boot in range(6, 1000):
        process.connect(boot=boot)
        tasks.append(process.deliver())
    assert None not in tasks and registration.unended == len(tasks) and not process.uplink.discarded
    for task in tasks:
        process.serving.answer(1.0, task, Kind.REPLY, 1, b"1")
    assert registration.unended == 0


@pytest.mark.parametrize(
    ("welcome", "sent"), [({"error_names": True}, b"ValueError"), ({}, b""), ({"error_names": 1}, b"")]
)
def test_a_fault_names_its_class_to_a_router_that_takes_it(process, welcome: dict[str, Any], sent: bytes):
    process.register()
    process.connect(**welcome)
    task = process.deliver()
    process.sent()
    process.serving.answer(1.0, task, Kind.FAULT, 1, b"record", b"ValueError")
    (message,) = process.sent()
    assert message[40 : 40 + parse(message).method_length] == sent
    assert payload_of(message) == b"record"


def test_a_fault_names_no_class_to_a_peer(process):
    peer = Collected()
    registration = process.register()
    process.connect(error_names=True)
    request = pack(Kind.REQUEST, b"p", format=2, key=bytes(12) + (5).to_bytes(8), address=COMPUTE.encode())
    process.serving.accept(0.0, request, registration, peer)
    (task,) = process.serving.delivered
    process.serving.answer(1.0, task, Kind.FAULT, 1, b"record", b"ValueError")
    assert [parse(message).method_length for message in peer.messages] == [0]


@pytest.mark.parametrize("kind", [Kind.REPLY, Kind.FAULT, Kind.END])
def test_an_answer_carries_what_the_router_needs(process, kind):
    registration = process.register(3)
    task = process.deliver(consumer=3, attempt=2, now=1.0)
    assert task is not None
    process.serving.answer(1.25, task, kind, 1, b"result")
    (message,) = process.sent()
    header = parse(message)
    assert (header.kind, header.attempt, header.consumer, header.format) == (kind, 2, 3, 1)
    assert (message[16:36], header.ttl, payload_of(message)) == (task.key, 250_000, b"result")
    assert registration.running == {}


def test_an_answer_to_what_was_not_begun_tells_no_time(process):
    process.register(0)
    task = process.deliver(now=1.0)
    assert task is not None
    process.serving.answer(1.25, task, Kind.FAULT, 1, b"gone", is_begun=False)
    (message,) = process.sent()
    assert parse(message).ttl == NO_TTL


def test_casts_of_one_wake_up_are_settled_together(process):
    process.register(0)
    process.register(1)
    tasks = [process.deliver(Kind.CAST, consumer=n % 2, now=1.0, attempt=n) for n in range(4)]
    for task in tasks:
        process.serving.settle(1.5, task, Outcome.OK if task.attempt else Outcome.REMOTE_ERROR)
    first, second = process.sent()
    assert (first[5], first[11], second[5], second[11]) == (Kind.SETTLE, 0, Kind.SETTLE, 1)
    assert list(SETTLEMENT.iter_unpack(payload_of(first))) == [
        (tasks[0].key, 0, Outcome.REMOTE_ERROR, 500_000),
        (tasks[2].key, 2, Outcome.OK, 500_000),
    ]


def test_many_settlements_are_several_messages(process):
    process.register(0, credit=3000)
    for _ in range(2500):
        task = process.deliver(Kind.CAST)
        process.serving.settle(0.0, task, Outcome.OK)
    assert [len(payload_of(p)) // SETTLEMENT.size for p in process.sent()] == [1000, 1000, 500]


def test_cancel_and_grant_reach_the_task(process):
    process.register(0)
    task = process.deliver()
    assert task is not None
    process.router(pack(Kind.GRANT, (5).to_bytes(4), key=task.key))
    assert process.serving.answered_streams.credit_of(task).items == STREAM_WINDOW + 5
    assert process.serving.changed == [task]
    process.router(pack(Kind.CANCEL, key=task.key))
    assert task.state is TaskState.CANCELLED and process.serving.changed == [task, task]
    process.router(pack(Kind.CANCEL, key=b"x" * 20))
    process.router(pack(Kind.GRANT, b"odd", key=task.key))
    assert process.uplink.discarded == {"length": 1}


def test_a_cancel_is_of_the_call_and_not_of_the_copy_that_a_group_here_has(process):
    process.register(0, group="audit")
    process.register(1)
    copy = process.deliver(Kind.CAST, key=b"k" * 20)
    call = process.deliver(key=b"k" * 20, consumer=1)
    assert copy is not None and call is not None
    process.router(pack(Kind.CANCEL, key=b"k" * 20))
    assert (copy.state, call.state) == (TaskState.RUNNING, TaskState.CANCELLED)


def test_items_use_up_grants_and_signs_of_life_do_not(process):
    process.register(0)
    task = process.deliver(attempt=1)
    assert task is not None
    process.serving.send_item(task, Kind.ITEM, 1, b"i")
    process.serving.send_item(task, Kind.ALIVE, 1, b"")
    assert process.serving.answered_streams.credit_of(task).items == STREAM_WINDOW - 1
    item, alive = process.sent()
    assert (item[5], payload_of(item), item[16:36], item[9]) == (Kind.ITEM, b"i", task.key, 1)
    assert alive[5] == Kind.ALIVE


def test_after_a_restart_nobody_waits_for_what_still_runs(process):
    registration = process.register(0)
    call, cast = process.deliver(), process.deliver(Kind.CAST)
    assert call is not None and cast is not None
    process.connect(2.0, boot=6)
    assert call.state is cast.state is TaskState.ABANDONED and registration.running == {}
    process.serving.answer(3.0, call, Kind.REPLY, 1, b"late")
    process.serving.send_item(call, Kind.ITEM, 1, b"late")
    process.serving.settle(3.0, cast, Outcome.OK)
    assert process.sent() == []


def test_after_a_resume_what_runs_is_still_wanted(process):
    process.register(0)
    task = process.deliver()
    assert task is not None
    base = process.uplink._sent_base + process.uplink.unacknowledged
    process.connect(2.0, resumed=True, received=base)
    process.serving.answer(3.0, task, Kind.REPLY, 1, b"r")
    assert [p[5] for p in process.sent()] == [Kind.REPLY]


# --- when answers are sent ----------------------------------------------------------------------


def kinds(messages: list[bytes]) -> list[int]:
    return [message[5] for message in messages]


def test_a_router_that_asks_is_told_once_a_wake_up_when_its_answers_are_sent(process):
    process.connect(stamps=True)
    process.register(0)
    first, second = process.deliver(), process.deliver()
    assert first is not None and second is not None
    process.serving.answer(12.0, first, Kind.REPLY, 1, b"r")
    process.serving.answer(12.25, second, Kind.FAULT, 1, b"f")
    stamp, *rest = process.sent(12.5)
    assert kinds(rest) == [Kind.REPLY, Kind.FAULT]
    assert parse(stamp) == parse(pack(Kind.CLOCK_STAMP, sequence=12_500_000)) and len(stamp) == 40
    assert process.sent(13.0) == []


def test_a_settlement_is_an_answer_and_what_else_is_sent_stands_behind_the_stamp(process):
    process.connect(stamps=True)
    process.register(0)
    image = Address("image").encode()
    process.calls.casts.send(pack(Kind.CAST, b"p", format=1, key=process.uplink.next_key(), address=image), image)
    task = process.deliver(Kind.CAST)
    assert task is not None
    process.serving.settle(1.0, task, Outcome.OK)
    messages = process.sent(1.5)
    assert kinds(messages) == [Kind.CLOCK_STAMP, Kind.CAST, Kind.SETTLE]
    assert messages[0][28:36] == (1_500_000).to_bytes(8)


def test_the_end_of_a_stream_is_an_answer_and_its_items_are_none(process):
    process.connect(stamps=True)
    process.register(0)
    task = process.deliver(flags=Flag.STREAM)
    assert task is not None
    process.serving.send_item(task, Kind.ITEM, 1, b"i")
    process.serving.send_item(task, Kind.ALIVE, 1, b"")
    assert kinds(process.sent(1.0)) == [Kind.ITEM, Kind.ALIVE]
    process.serving.answer(1.0, task, Kind.END, 0, b"")
    assert kinds(process.sent(2.0)) == [Kind.CLOCK_STAMP, Kind.END]


@pytest.mark.parametrize("welcome", [{}, {"stamps": False}, {"stamps": 1}])
def test_a_router_that_does_not_ask_is_not_told(process, welcome: dict[str, Any]):
    process.connect(**welcome)
    process.register(0)
    task = process.deliver()
    assert task is not None
    process.serving.answer(1.0, task, Kind.REPLY, 1, b"r")
    assert kinds(process.sent(2.0)) == [Kind.REPLY]


def test_an_answer_to_a_peer_is_none_to_the_router(process):
    process.connect(stamps=True)
    registration, peer = process.register(0), Collected()
    message = pack(Kind.REQUEST, b"p", format=1, key=b"k" * 20, address=COMPUTE.encode(), method=b"m")
    process.serving.accept(1.0, message, registration, peer)
    process.serving.answer(2.0, process.serving.delivered[0], Kind.REPLY, 1, b"r")
    assert kinds(process.sent(2.0)) == [] and kinds(peer.messages) == [Kind.REPLY]


def test_what_the_socket_has_not_taken_is_stamped_when_it_does(process):
    process.connect(stamps=True)
    process.register(0)
    for now in (1.0, 2.0):
        task = process.deliver()
        assert task is not None
        process.serving.answer(now, task, Kind.REPLY, 1, b"r")
        process.serving.flush(now)
    messages = process.sent(3.0)
    assert kinds(messages) == [Kind.CLOCK_STAMP, Kind.REPLY, Kind.REPLY]
    assert messages[0][28:36] == (2_000_000).to_bytes(8)


def test_what_waits_for_the_connection_is_stamped_when_it_is_there(process):
    process.connect(stamps=True)
    process.register(0)
    task = process.deliver()
    assert task is not None
    received = process.uplink._sent_base + process.uplink.unacknowledged
    process.uplink.lost(1.0)
    process.serving.answer(1.0, task, Kind.REPLY, 1, b"r")
    process.serving.flush(1.0)
    assert kinds(process.uplink.outbox) == [Kind.REPLY]
    process.uplink.connected(5.0)
    body = {"router_id": 1, "boot": 5, "handle": 7, "token": "t", "received": received, "resumed": True, "stamps": True}
    process.router(control(Kind.WELCOME, body), 5.0)
    messages = process.sent(5.0)
    assert kinds(messages) == [Kind.CLOCK_STAMP, Kind.REPLY]
    assert messages[0][28:36] == (5_000_000).to_bytes(8)


def test_a_new_session_begins_without_answers(process):
    process.connect(stamps=True)
    process.register(0)
    task = process.deliver()
    assert task is not None
    process.uplink.lost(1.0)
    process.serving.answer(1.0, task, Kind.REPLY, 1, b"r")
    process.uplink.connected(2.0)
    body = {"router_id": 1, "boot": 6, "handle": 7, "token": "t", "received": 0, "resumed": False, "stamps": True}
    process.router(control(Kind.WELCOME, body), 2.0)
    assert kinds(process.sent(2.0)) == [Kind.REGISTER]


def test_a_stamp_is_counted_and_kept_until_it_is_acknowledged(process):
    process.connect(stamps=True)
    process.register(0)
    task = process.deliver()
    assert task is not None
    before = process.uplink.unacknowledged
    process.serving.answer(1.0, task, Kind.REPLY, 1, b"r")
    stamped = process.sent(2.0)
    assert process.uplink.unacknowledged == before + 2
    received = process.uplink._sent_base + before
    assert process.connect(3.0, resumed=True, received=received, stamps=True) == stamped, "again, and unchanged"


# --- casts that come twice ----------------------------------------------------------------------


def test_a_cast_sent_again_at_another_router_of_the_process_is_recognised_there() -> None:
    here, there = Process(), Process()
    there.serving.recent.share(here.serving.recent)
    registrations = here.register(), there.register()
    had = here.deliver(Kind.CAST, key=b"k" * 20)
    assert had is not None
    assert there.deliver(Kind.CAST, key=b"k" * 20, flags=Flag.RESENT) is None
    assert there.serving.counters == {"duplicate casts dropped": 1}
    [settlement] = there.sent()
    assert settlement[KIND_AT] == Kind.SETTLE
    assert [len(registration.running) for registration in registrations] == [1, 0]
    assert there.deliver(Kind.CAST, key=b"n" * 20, flags=Flag.RESENT) is not None


def test_a_router_that_delivers_much_has_no_cast_of_another_forgotten_and_tells_it_nothing() -> None:
    honest, hostile = Process(), Process()
    hostile.serving.recent.share(honest.serving.recent)
    honest.register(credit=2)
    hostile.register(credit=10_000)
    honest.deliver(Kind.CAST, key=b"k" * 20)
    for n in range(5000):
        hostile.deliver(Kind.CAST, key=b"x" * 12 + n.to_bytes(8))
    (register,) = [m for m in honest.connect(2.0, boot=6) if m[KIND_AT] == Kind.REGISTER]
    assert body_of(register)["recent"] == (b"k" * 20).hex()
    assert honest.deliver(Kind.CAST, key=b"k" * 20, flags=Flag.RESENT) is None


def test_a_cast_sent_again_after_a_restart_is_recognised_and_settled(process):
    process.register(0)
    task = process.deliver(Kind.CAST, key=b"k" * 20)
    assert task is not None
    process.connect(2.0, boot=6)
    assert process.deliver(Kind.CAST, key=b"k" * 20, flags=Flag.RESENT) is None
    assert process.serving.counters == {"duplicate casts dropped": 1}
    (settle,) = [p for p in process.sent() if p[5] == Kind.SETTLE]
    ((key, attempt, outcome, _),) = SETTLEMENT.iter_unpack(payload_of(settle))
    assert (key, attempt, outcome) == (b"k" * 20, 0, Outcome.OK)


def test_the_router_is_told_which_casts_were_here_before_its_restart(process):
    process.register(0, credit=10_000)
    keys = [bytes([n]) * 20 for n in range(5)]
    for key in keys:
        process.deliver(Kind.CAST, key=key)
    (register,) = process.connect(2.0, boot=6)
    assert body_of(register)["recent"] == b"".join(keys).hex()


def test_what_the_topic_had_and_what_a_group_of_it_had_are_told_apart(process):
    """A copy has the key of the original."""
    process.register(0, credit=10)
    process.register(1, credit=10, group="audit")
    keys = [bytes([n]) * 20 for n in range(3)]
    for key, tag in ((keys[0], 0), (keys[0], 1), (keys[1], 0), (keys[2], 1)):
        process.deliver(Kind.CAST, key=key, consumer=tag)
    recent = [body_of(register)["recent"] for register in process.connect(2.0, boot=6)]
    assert recent == [(keys[0] + keys[1]).hex(), (keys[0] + keys[2]).hex()]
    assert process.deliver(Kind.CAST, key=keys[1], flags=Flag.RESENT, consumer=0) is None
    assert process.deliver(Kind.CAST, key=keys[1], flags=Flag.RESENT, consumer=1) is not None


def test_only_so_many_are_remembered(process):
    process.register(0, credit=10_000)
    for n in range(5000):
        process.serving.settle(0.0, process.deliver(Kind.CAST, key=n.to_bytes(20)), Outcome.OK)
    (register,) = process.connect(2.0, boot=6)
    assert len(body_of(register)["recent"]) == 4096 * 40


# --- bad input ----------------------------------------------------------------------------------


def test_a_delivery_whose_parts_do_not_fit_is_not_run(process):
    process.register(0)
    message = bytearray(pack(Kind.REQUEST, b"", key=b"k" * 20, address=COMPUTE.encode(), method=b"m"))
    message[38] = 200
    process.router(bytes(message))
    assert process.serving.delivered == [] and process.uplink.discarded == {"length": 1}


@given(st.lists(st.tuples(st.sampled_from(list(Kind)), st.binary(max_size=80)), max_size=10))
def test_no_message_from_the_router_raises(messages):
    process = Process()
    process.register(0)
    for kind, rest in messages:
        message = bytearray(pack(kind, rest))
        message[6:40] = (rest * 40)[:34].ljust(34, b"\0")
        message[7] &= 0xFE
        process.router(bytes(message))
        tasks, process.serving.delivered = process.serving.delivered, []
        for task in tasks:
            process.serving.answer(0.0, task, Kind.REPLY, 1, b"")


def test_durations_are_clamped():
    assert [wire_microseconds(s) for s in (-1.0, 0.0, 1.5, 1e9)] == [0, 0, 1_500_000, NO_TTL - 1]


def test_which_registration_serves_an_address(process):
    registration = process.register(0, Address("compute", "node-7", "east"))
    serving = partial(registration_for, registrations=process.serving.registrations.values())
    for topic, server in (("compute", ""), ("compute", "node-7"), ("compute.node-7", "")):
        assert serving(Address(topic, server, "east")) is registration
    for address in (Address("compute"), Address("compute", "node-8", "east"), Address("network", "", "east")):
        assert serving(address) is None


def test_answers_that_nobody_gets_are_counted(process):
    process.register()
    for number in (1, 2):
        key = process.uplink.origin + number.to_bytes(8)
        process.router(pack(Kind.REQUEST, b"", key=key, format=1, address=COMPUTE.encode(), method=b"m"))
    answered, running = process.tasks or process.serving.delivered
    process.serving.answer(0.0, answered, Kind.REPLY, 1, b"")
    process.sent()
    # The router has forgotten everything, before it said that it had the first answer.
    process.connect(now=1.0, boot=6)
    assert process.serving.counters["late answers"] == 1
    process.serving.answer(1.0, running, Kind.REPLY, 1, b"")
    assert process.serving.counters["late answers"] == 2
