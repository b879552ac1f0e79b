"""The room for those who wait for the ends of items."""

from __future__ import annotations

from collections import Counter
from random import Random

from rpcmq.core.queue.asker_room import AskerRoom

MOST = 30


class Waits:
    """Those who wait, in one plain list."""

    def __init__(self) -> None:
        self.room = AskerRoom(MOST)
        self.waiting: list[tuple[bytes, object]] = []
        self.sent_away: list[bytes] = []

    def ask(self, origin: bytes) -> bool:
        if not self.room.admits(origin):
            return False

        def send_away() -> None:
            self.sent_away.append(origin)
            self.end((origin, send_away))

        self.waiting.append((origin, send_away))
        self.room.enter(origin, send_away)
        return True

    def end(self, wait: tuple[bytes, object]) -> None:
        self.waiting.remove(wait)
        self.room.leave(*wait)  # type: ignore[arg-type]


def test_who_has_most_makes_way_for_those_who_have_less() -> None:
    for seed in range(50):
        random, waits = Random(seed), Waits()
        for _ in range(500):
            if waits.waiting and random.random() < 0.3:
                waits.end(random.choice(waits.waiting))
                continue
            origin = bytes([random.choice((1, 1, 1, 2, 2, *range(3, 20)))])
            before, sent = [each for each, _ in waits.waiting], len(waits.sent_away)
            numbers = Counter(before)
            is_in = waits.ask(origin)
            away = waits.sent_away[sent:]
            if len(before) < MOST:
                assert is_in and not away
            elif max(numbers.values()) > numbers[origin] + 1:
                assert is_in and len(away) == 1 and numbers[away[0]] == max(numbers.values())
                # The oldest of that process.
                assert [each for each, _ in waits.waiting].count(away[0]) == numbers[away[0]] - 1
            else:
                assert not is_in and not away
            assert waits.room.count == len(waits.waiting) <= MOST


def test_the_oldest_of_a_process_makes_way() -> None:
    room, away = AskerRoom(3), list[int]()

    def send(number: int) -> None:
        away.append(number)
        room.leave(b"greedy", senders[number])

    senders = [lambda number=number: send(number) for number in range(3)]
    for sender in senders:
        assert room.admits(b"greedy")
        room.enter(b"greedy", sender)
    assert not room.admits(b"greedy") and not away
    assert room.admits(b"modest") and away == [0]
