"""The answers of workers: what is none is refused, and what is one is bounded."""

from __future__ import annotations

from typing import Any

import pytest

from rpcmq.client.failures import ToldFailure
from rpcmq.client.queue.protocol import DONE, FAILED, WorkAnswer
from rpcmq.errors import RemoteError
from rpcmq.queue_server.work_answers import LONGEST, answer_of


@pytest.mark.parametrize(
    "wrong",
    [
        {"outcome": "lost"},
        {"outcome": [DONE]},
        {"text": None},
        {"text": ["x"] * 1000},
        {"again": float("nan")},
        {"again": float("inf")},
        {"again": -1.0},
        {"again": "soon"},
        {"again": True},
        {"format": 256},
        {"format": "json"},
        {"result": "text"},
        {"seconds": float("nan")},
        {"seconds": "long"},
        {"worker": ["x"]},
        {"is_begun": 1},
    ],
)
def test_what_is_no_answer(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"malformed: {next(iter(wrong))} = "):
        answer_of(lambda: tuple(WorkAnswer(FAILED)._replace(**wrong)))


@pytest.mark.parametrize("wrong", [(), 17, None, "text of more letters than there are", [FAILED] * 20])
def test_what_has_not_even_the_form(wrong: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        answer_of(lambda: wrong)


def test_an_answer_is_bounded() -> None:
    long = WorkAnswer(FAILED, "x" * 1_000_000 + "\ud800", 1e300, 0, b"", 1e300, "w" * 1_000_000)
    answer = answer_of(lambda: tuple(long))
    assert len(answer.text) == 16_000 and answer.text.endswith("x?") and len(answer.worker) == 255
    assert answer.again == 4_000_000 and answer.seconds == LONGEST


def test_what_a_worker_has_raised_is_checked_too() -> None:
    def raised() -> Any:
        name = f"{ToldFailure.__module__}.{ToldFailure.__qualname__}"
        raise RemoteError(name, args=(FAILED, "why", float("nan")))

    with pytest.raises(ValueError, match="again"):
        answer_of(raised)
