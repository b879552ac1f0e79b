"""Changes that are sent to a store together."""

from __future__ import annotations

from rpcmq.queue_server.gathered_changes import GatheredChanges
from rpcmq.store.contract import Lane, Maker, Put, Verdict
from rpcmq.store.frames import decode_changes, encode_verdicts

_LANE = Lane("billing", 0)


def put(count: int, body: bytes = b"body") -> Put:
    return Put(_LANE, body, 1, maker=Maker(7, count))


def test_each_gets_the_verdicts_of_its_own_changes_whatever_another_raises() -> None:
    gathered = GatheredChanges()
    answers: list[list[Verdict]] = []
    failures: list[Exception] = []

    def raising(verdicts: list[Verdict]) -> None:
        raise ValueError(f"{len(verdicts)}")

    assert not gathered
    gathered.add([put(1), put(2)], answers.append)
    gathered.add([], answers.append)
    gathered.add([put(3)], raising)
    gathered.add([put(4)], answers.append)
    assert gathered
    assert decode_changes(gathered.content) == [put(1), put(2), put(3), put(4)]
    gathered.answer(encode_verdicts([Verdict(number) for number in (1, 2, 3, 4)]), failures.append)
    assert answers == [[Verdict(1), Verdict(2)], [], [Verdict(4)]]
    assert [str(error) for error in failures] == ["1"]


def test_they_are_bounded_in_number_and_bytes() -> None:
    many, large = GatheredChanges(), GatheredChanges()
    for count in range(256):
        assert not many.is_full
        many.add([put(count)], lambda verdicts: None)
    assert many.is_full
    large.add([put(1, bytes(1 << 20))], lambda verdicts: None)
    assert large.is_full
