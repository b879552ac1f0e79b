"""Periodic items as a user declares and removes them, in steps: at the owner that puts them, whoever is asked."""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic
from typing import Any

from rpcmq.client.queue.absence import absent
from rpcmq.client.queue.asking import until_answered
from rpcmq.client.queue.protocol import Record, all_queues, at_owner, check_queue
from rpcmq.client.queue.puts import Producer
from rpcmq.client.queue.records import pack_records
from rpcmq.client.queue.steps import Ask, Steps
from rpcmq.errors import NoConsumer, UsageError
from rpcmq.payload.bounded_text import short_repr

__all__ = ["declare_periodic", "remove_periodic"]


def declare_periodic(
    producer: Producer, queue: str, name: str, times: Mapping[str, str], record: Record, seconds: float
) -> Steps[dict[str, Any]]:
    """Have an item put again and again; see :meth:`rpcmq.Client.declare_periodic`.

    Args:
        times: ``cron``, ``zone`` and ``missed``.
    """
    for option, value in {"name": name, **times}.items():
        if not isinstance(value, str):
            raise UsageError(f"{option} must be a text, not {short_repr(value)}")
    args = {"name": name, **times, "record": pack_records([record])}
    answer = yield from _ask_home(producer, queue, "declare_periodic", args, seconds)
    if refusal := answer.get("refusal"):
        raise UsageError(f"queue {queue!r}: {refusal}")
    return dict(answer["periodic"])


def remove_periodic(producer: Producer, queue: str, name: str, seconds: float) -> Steps[bool]:
    """Have it put no more; see :meth:`rpcmq.Client.remove_periodic`."""
    check_queue(queue)
    deadline = monotonic() + seconds

    def ask(seconds: float) -> Steps[Any]:
        return (yield Ask(all_queues(), {"method": "periodic", "args": {"queue": queue, "name": name}}, seconds, True))

    answer: dict[str, Any] = {"known": True} if producer.has_owner(queue) else (yield from until_answered(ask, seconds))
    if answer.get("known"):
        # Only now: whoever is asked for the owner of a queue makes it where there is none.
        left = max(0.001, deadline - monotonic())
        answer = yield from _ask_home(producer, queue, "remove_periodic", {"name": name}, left)
    if refusal := answer.get("refusal"):
        raise UsageError(f"queue {queue!r}: {refusal}")
    return bool(answer.get("removed"))


def _ask_home(
    producer: Producer, queue: str, method: str, args: Mapping[str, Any], seconds: float
) -> Steps[dict[str, Any]]:
    """Ask the owner that has the periodic item; where there is none, or it is gone, that of this client."""
    check_queue(queue)

    def ask(seconds: float) -> Steps[dict[str, Any]]:
        owner = yield from producer.owner(queue, seconds)
        try:
            answer = yield from _ask(queue, owner, method, {**args, "here": False}, seconds)
        except NoConsumer:
            producer.forget_owner(queue)
            raise
        home = answer.get("owner")
        if home is None:
            return answer
        try:
            return (yield from _ask(queue, home, method, {**args, "here": True}, seconds))
        except NoConsumer as error:
            absence = absent(error)
            if absence is not None and home in absence.states and not absence.is_unavailable(home):
                raise  # it comes back, and has what it has put
            return (yield from _ask(queue, owner, method, {**args, "here": True}, seconds))

    answer: dict[str, Any] = yield from until_answered(ask, seconds)
    return answer


def _ask(queue: str, owner: str, method: str, args: Mapping[str, Any], seconds: float) -> Steps[dict[str, Any]]:
    answer = yield Ask(at_owner(queue, owner), {"method": method, "args": args}, seconds, True)
    return dict(answer)
