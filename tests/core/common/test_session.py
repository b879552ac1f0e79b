"""The session that both ends of a link keep: what is lost with a connection is sent again, once."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcmq.core.common.session import ACK_BYTES, ACK_MESSAGES, BATCH_MESSAGES, Session
from rpcmq.errors import ProtocolError
from rpcmq.testing.network import Message
from rpcmq.wire import Kind, pack


def cast(number: int) -> bytes:
    return pack(Kind.CAST, sequence=number)


def flush(session: Session) -> list[bytes]:
    sent = []
    while session.outbox:
        sent += session.batch()
        session.batch_was_sent()
    return sent


@pytest.fixture
def session() -> Session:
    return Session([])


def test_a_session_is_listed_once_while_it_has_something_to_send(session: Session):
    session.send(cast(1))
    session.send(cast(2))
    session.send_first(cast(3))
    session.send_last(cast(4))
    assert session.dirty == [session] and session.marked
    session.dirty.clear()
    session.marked = False
    session.send_last(cast(5))
    assert session.dirty == [session]


def test_a_batch_is_bounded_and_keeps_the_order(session: Session):
    messages = [cast(i) for i in range(2 * BATCH_MESSAGES + 1)]
    for p in messages:
        session.send(p)
    sizes = []
    sent: list[bytes] = []
    while session.outbox:
        batch = list(session.batch())
        sizes.append(len(batch))
        session.batch_was_sent()
        sent += batch
    assert sizes == [BATCH_MESSAGES, BATCH_MESSAGES, 1]
    assert sent == messages and session.unacknowledged == len(messages)


def test_what_was_queued_while_a_batch_was_sent_goes_with_the_next(session: Session):
    for i in range(BATCH_MESSAGES):
        session.send(cast(i))
    session.batch()
    session.batch_was_sent()
    session.send(cast(1000))
    assert session.batch() == [cast(1000)]


def test_acknowledged_messages_are_returned_once_and_forgotten(session: Session):
    for i in range(3):
        session.send(cast(i))
    flush(session)
    assert session.acknowledged(2) == [cast(0), cast(1)]
    assert session.acknowledged(2) == []
    assert session.acknowledged(3) == [cast(2)]
    assert session.unacknowledged == 0


@pytest.mark.parametrize("count", [4, 1, 1 << 63])
def test_an_impossible_acknowledgement_is_refused_and_changes_nothing(session: Session, count: int):
    for i in range(3):
        session.send(cast(i))
    flush(session)
    session.acknowledged(2)
    with pytest.raises(ProtocolError, match=f"acknowledged {count}; expected 2 to 3"):
        session.acknowledged(count)
    assert session.acknowledged(3) == [cast(2)]


def test_what_is_not_sent_cannot_be_acknowledged(session: Session):
    session.send(cast(1))
    with pytest.raises(ProtocolError):
        session.acknowledged(1)


def test_an_ack_is_due_after_so_many_messages(session: Session):
    session.count_received(ACK_MESSAGES - 1, 100)
    assert session.last_messages == []
    session.count_received(1, 100)
    (ack,) = session.last_messages
    assert Message(ack).kind is Kind.ACK and Message(ack).header.sequence == ACK_MESSAGES


def test_an_ack_is_due_after_so_many_bytes(session: Session):
    session.count_received(1, ACK_BYTES - 1)
    assert session.last_messages == []
    session.count_received(1, 1)
    (ack,) = session.last_messages
    assert Message(ack).header.sequence == 2 and session.unacked_bytes == 0


def test_no_ack_when_there_is_nothing_new(session: Session):
    session.acknowledge()
    assert session.last_messages == []
    session.count_received(1, 10)
    session.acknowledge()
    session.acknowledge()
    assert len(session.last_messages) == 1


def test_no_ack_for_what_the_peer_was_told_otherwise(session: Session):
    session.count_received(5, 10)
    session.ack_was_sent()
    session.acknowledge()
    assert session.last_messages == []


def test_resume_puts_what_did_not_arrive_in_front_of_what_was_not_sent(session: Session):
    for i in range(4):
        session.send(cast(i))
    flush(session)
    session.send(cast(4))
    assert session.resume(1) == [cast(0)]
    assert session.outbox == [cast(1), cast(2), cast(3), cast(4)]
    assert flush(session) == [cast(i) for i in (1, 2, 3, 4)]
    assert session.acknowledged(5) == [cast(i) for i in (1, 2, 3, 4)]


def test_resume_with_an_impossible_count_changes_nothing(session: Session):
    session.send(cast(0))
    flush(session)
    with pytest.raises(ProtocolError):
        session.resume(2)
    assert session.outbox == [] and session.unacknowledged == 1


def test_resume_marks_the_session_if_something_is_to_be_sent(session: Session):
    session.resume(0)
    assert session.dirty == []
    session.send(cast(0))
    flush(session)
    session.dirty.clear()
    session.marked = False
    session.resume(0)
    assert session.dirty == [session]


def test_abandon_tells_what_was_sent_from_what_was_not_and_starts_over(session: Session):
    for i in range(3):
        session.send(cast(i))
    flush(session)
    session.acknowledged(1)
    session.send(cast(3))
    session.count_received(7, 10)
    assert session.abandon() == ([cast(1), cast(2)], [cast(3)])
    assert session.received == 0 and session.unacknowledged == 0 and session.outbox == []
    session.send(cast(9))
    flush(session)
    assert session.acknowledged(1) == [cast(9)]


def test_what_was_about_the_connection_goes_with_it(session: Session):
    session.send_first(cast(1))
    session.send_last(cast(2))
    session.send(cast(3))
    session.disconnected()
    assert session.first_messages == session.last_messages == [] and session.outbox == [cast(3)]


def test_the_latest_sent_message_with_a_key_is_found_until_acknowledged(session: Session):
    old, new = pack(Kind.CAST, b"old", sequence=7), pack(Kind.CAST, b"new", sequence=7)
    for p in (old, new):
        session.send(p)
    key = old[16:36]
    assert session.find_sent(key) is None
    flush(session)
    assert session.find_sent(key) == new
    session.acknowledged(2)
    assert session.find_sent(key) is None


@given(st.lists(st.integers(0, 3), max_size=60), st.integers(0, 2**32))
def test_whatever_breaks_each_side_gets_all_of_the_other_once_and_in_order(events: list[int], seed: int):
    """Two sessions over connections that break at any point, against the obvious: what was sent."""
    rng = random.Random(seed)
    ends = Session([]), Session([])
    sent: tuple[list[bytes], list[bytes]] = ([], [])
    got: tuple[list[bytes], list[bytes]] = ([], [])
    wire: tuple[list[bytes], list[bytes]] = ([], [])

    def move(source: int, limit: int) -> None:
        wire[source].extend(flush(ends[source]))
        arrived = [wire[source].pop(0) for _ in range(min(limit, len(wire[source])))]
        got[1 - source].extend(arrived)
        if arrived:
            ends[1 - source].count_received(len(arrived), 100 * len(arrived))

    for number, event in enumerate(events):
        side = rng.randrange(2)
        if event == 0:
            sent[side].append(cast(number))
            ends[side].send(cast(number))
        elif event == 1:
            move(side, rng.randrange(4))
        elif event == 2:
            ends[side].acknowledged(ends[1 - side].received)
        else:
            wire[0].clear()
            wire[1].clear()
            ends[0].resume(ends[1].received)
            ends[1].resume(ends[0].received)
    move(0, 1000)
    move(1, 1000)
    assert got == (sent[1], sent[0])


def test_the_outbox_stays_one_list():
    # Who fills it in a loop looks at its length to know when it is time to send.
    session = Session([])
    outbox = session.outbox
    for _ in range(3):
        session.send(bytes(40))
        session.batch()
        session.batch_was_sent()
        assert session.outbox is outbox and not outbox
