"""The latest messages of a process, of one link and of several."""

from __future__ import annotations

from rpcmq.core.process.recent_messages import RecentMessages
from rpcmq.wire import KEY_BYTES

#: Messages that are remembered of one link.
MOST = 4096


def key(number: int) -> bytes:
    return number.to_bytes(KEY_BYTES)


def had(*numbers: int, group: str = "") -> RecentMessages:
    recent = RecentMessages()
    for number in numbers:
        recent.add(key(number), group)
    return recent


def told(recent: RecentMessages, group: str = "") -> list[int]:
    keys = recent.keys_of(group)
    return sorted(int.from_bytes(keys[at : at + KEY_BYTES]) for at in range(0, len(keys), KEY_BYTES))


def test_links_that_share_recognise_all_and_tell_each_their_own() -> None:
    one, other = had(1), had(2)
    other.share(one)
    assert all(each.is_known(key(number)) for each in (one, other) for number in (1, 2))
    assert (told(one), told(other)) == ([1], [2])


def test_a_link_in_the_place_of_others_recognises_and_tells_what_they_had() -> None:
    one, other = had(1), had(2)
    other.share(one)
    other.add(key(3), "auditors")
    link = had(4)
    link.replace([one, other])
    one.add(key(5))  # it is used a moment longer
    assert all(link.is_known(key(number)) for number in (1, 2, 4, 5)) and link.is_known(key(3), "auditors")
    assert told(link) == [1, 2, 4, 5] and told(link, "auditors") == [3]
    link.forget(key(1))
    assert not link.is_known(key(1)) and told(link) == [2, 4, 5]


def test_it_tells_no_more_than_one_link_does_the_latest_of_each() -> None:
    link = had(1)
    link.replace([had(*range(2, MOST)), had(*range(MOST, 2 * MOST))])
    room = (MOST - 1) // 2
    assert told(link) == [1, *range(MOST - room, MOST), *range(2 * MOST - room, 2 * MOST)]
    for number in range(3 * MOST, 4 * MOST):
        link.add(key(number))
    assert told(link) == list(range(3 * MOST, 4 * MOST))
