"""Items that a peer offers, and that are none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rpcmq.client.queue.protocol import VERSION, PutAnswer, Record, WorkAnswer
from rpcmq.client.queue.records import pack_records
from rpcmq.errors import UsageError
from rpcmq.queue_server import endpoints
from rpcmq.queue_server.endpoints import AllQueues, OneQueue
from rpcmq.queue_server.fair_turns import MOST_WORK, Turns
from rpcmq.queue_server.operators import ChangeEndpoint, LookEndpoint

GOOD = Record(b"i", 0, b"", 0, 0.0, 0.0, b"", "charge", 1, b"{}")
NOBODY: Any = None


def _unexpected(error: BaseException) -> None:
    raise error


def queue() -> OneQueue:
    """A queue that asks nobody anything."""
    return OneQueue("billing", "here", NOBODY, lambda now: 0, NOBODY, Turns(), NOBODY, NOBODY, lambda: "")


def put(producer: Any, records: Any) -> PutAnswer:
    answers: list[list[Any]] = []
    queue().put(None, producer, records).then(answers.append, _unexpected)
    return PutAnswer(*answers[0])


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": b"\xff"},
        {"id": b""},
        {"priority": 10},
        {"method": ""},
        {"delay": float("inf")},
        {"delay": float("nan")},
        {"expires": 1e300},
        {"keep_result": float("nan")},
    ],
)
def test_an_item_that_is_malformed_is_refused_with_all_others(wrong: dict[str, Any]) -> None:
    answer = put(7, pack_records([GOOD, GOOD._replace(**wrong)]))
    assert answer.refusal.startswith("an item is malformed: ") and answer[1:] == ([], [], False, False)


@pytest.mark.parametrize("producer", [None, "7", 1.5, [7], -7, 0, 1 << 63, True])
def test_a_producer_that_is_none_puts_nothing(producer: Any) -> None:
    assert "it has no id" in put(producer, pack_records([GOOD._replace(id=b"", counter=1)])).refusal


@pytest.mark.parametrize("records", [None, "text", 17, {}, [b""], pack_records([GOOD]) * 10_001])
def test_records_that_are_none_or_too_many_put_nothing(records: Any) -> None:
    assert put(7, records).refusal


@pytest.mark.parametrize("place", [(10, 1), (-1, 1), ("0", 1), (0, -1), (0, "1"), (0, 1 << 63), ([], {}), (0.5, 1.5)])
@pytest.mark.parametrize("method", ["state", "cancel", "result"])
def test_a_question_about_what_can_be_no_item_is_refused_before_anything_is_remembered(
    method: str, place: tuple[Any, Any]
) -> None:
    more = {"seconds": 1.0} if method == "result" else {}
    with pytest.raises(ValueError, match="must be"):
        getattr(queue(), method)(None, *place, **more)


@pytest.mark.parametrize("id", [None, 5, b"x", ["x"], {"x": 1}, "\ud800"])
@pytest.mark.parametrize("method", ["state", "cancel", "result"])
def test_a_question_with_what_can_be_no_id_is_refused_before_the_store_is_asked(method: str, id: Any) -> None:
    more = {"seconds": 1.0} if method == "result" else {}
    with pytest.raises(ValueError, match="id must be the text of an item's id"):
        getattr(queue(), method)(None, 0, 1, **more, id=id)


@pytest.mark.parametrize("seconds", [None, "1", [], True])
def test_a_wait_for_what_is_no_time_is_refused(seconds: Any) -> None:
    with pytest.raises(ValueError, match="seconds must be a number"):
        queue().result(None, 0, 1, seconds)


@pytest.mark.parametrize(
    "wrong",
    [{"cron": b"* * * * *"}, {"zone": b"UTC"}, {"zone": None}, {"missed": [1]}, {"name": b"x"}, {"name": "\ud800"}],
)
def test_a_periodic_item_that_is_none_is_refused_by_the_name_of_what_is_wrong(wrong: dict[str, Any]) -> None:
    given = {"name": "nightly", "cron": "* * * * *", "zone": "UTC", "missed": "last"} | wrong
    answers: list[dict[str, Any]] = []
    record = pack_records([GOOD])
    queue().declare_periodic(None, **given, record=record, here=True).then(answers.append, _unexpected)
    ((refusal,),) = [answer.values() for answer in answers]
    assert f"{next(iter(wrong))} " in refusal and " must be " in refusal


def change() -> ChangeEndpoint:
    """The verbs of operators, of a queue server that asks nobody anything."""
    queues: Any = SimpleNamespace(store=None)
    return ChangeEndpoint(queues, {"billing": NOBODY}, NOBODY, NOBODY, NOBODY, Turns())


@pytest.mark.parametrize(
    "verb", [{"method": "retry"}, {"method": "drop"}, {"method": "move", "to": "b", "state": "dead"}]
)
@pytest.mark.parametrize(
    "items",
    [
        [[99, 1]], [[-1, 1]], [[0, -1]], [[0, 1 << 63]], [["0", 1]], [[0.5, 1]], [[0, 1], [0, None]], [[0]], [7], 7,
        "0/17", {}, [[0, 1]] * 10_001,
    ],
)  # fmt: skip
def test_an_operator_who_names_what_can_be_no_item_changes_nothing(verb: dict[str, Any], items: Any) -> None:
    more = dict(verb)
    with pytest.raises(ValueError, match=r"must be"):
        getattr(change(), more.pop("method"))(None, "billing", **more, items=items)


@pytest.mark.parametrize("mark", [7, "0000", [0, 0, 0], [0] * 5, [0, 0, 0, -1], [0, 0, 0, 1 << 63], [None] * 4, {}])
def test_a_change_goes_on_at_no_mark_that_can_be_none(mark: Any) -> None:
    with pytest.raises(ValueError, match="mark must be that of an earlier answer"):
        change().retry(None, "billing", None, mark)


@pytest.mark.parametrize("after", [7, "000", [0, 0], [0] * 4, [0, 0, -1], [0, 0, 1 << 63], [None] * 3, [0.0] * 3, {}])
def test_dead_items_are_looked_at_after_no_mark_that_can_be_none(after: Any) -> None:
    queues: Any = SimpleNamespace(store=None)
    look = LookEndpoint(NOBODY, queues, {"billing": NOBODY}, NOBODY, NOBODY, Turns(), NOBODY)
    with pytest.raises(ValueError, match="after must be the mark of a dead item"):
        look.items(None, "billing", "dead", 10, after=after)


@pytest.mark.parametrize("state", ["Ready", "", "running", None, ["dead"], 7])
def test_only_what_is_dead_or_ready_is_moved(state: Any) -> None:
    with pytest.raises(ValueError, match="state must be dead or ready, not "):
        change().move(None, "billing", "other", state, None)


def test_items_that_are_ready_are_not_moved_by_name() -> None:
    with pytest.raises(ValueError, match="items can be named where they are dead"):
        change().move(None, "billing", "other", "ready", [[0, 1]])


@pytest.mark.parametrize("queue", [None, 7, ["billing"], b"billing"])
def test_what_can_be_no_queue_is_not_known(queue: Any) -> None:
    assert change().retry(None, queue, None) is None and change().pause(None, queue) is None


@pytest.mark.parametrize(
    ("version", "who"), [(VERSION - 1, "this client"), (VERSION + 1, "the queue server of here"), (None, "")]
)
def test_a_client_of_another_version_is_told_who_is_the_older(version: Any, who: str) -> None:
    text = f"the queue server of here speaks version {VERSION} of the messages of queues, and this client {version}: "
    opened: list[str] = []
    with pytest.raises(UsageError) as refusal:
        AllQueues("here", opened.append, NOBODY, NOBODY, NOBODY).open(None, "billing", version=version)
    assert str(refusal.value).startswith(text) and str(refusal.value).endswith(f"update rpcmq for {who}" if who else "")
    assert opened == []
    answers: list[list[Any]] = []
    queue().put(None, 7, pack_records([GOOD]), version).then(answers.append, _unexpected)
    assert PutAnswer(*answers[0]) == PutAnswer(str(refusal.value), [], [], is_blind=True)


def test_members_that_a_later_version_has_added_are_left_out() -> None:
    assert PutAnswer.of(["", [17], [], False, False, "new"]) == PutAnswer("", [17], [])
    assert PutAnswer.of(["", [17], []]) == PutAnswer("", [17], [])
    assert WorkAnswer.of(["done", "", None, 0, b"", 1.0, "worker", True, "new"]) == WorkAnswer(
        "done", "", None, 0, b"", 1.0, "worker"
    )


def test_an_answer_of_the_store_that_cannot_be_used_ends_its_turn_and_fails_for_the_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []
    failed: list[BaseException] = []
    store = SimpleNamespace(show=lambda name, priority, number, answered: asked.append(answered))
    monkeypatch.setattr(endpoints, "Operators", lambda queues: store)
    served = queue()
    for _ in range(2 * MOST_WORK // 50):
        served.state(None, 5, 1).then(asked.append, failed.append)
        with pytest.raises(AttributeError):
            asked.pop()("no view of an item")
    assert len(failed) == 2 * MOST_WORK // 50 and {type(error) for error in failed} == {AttributeError}
