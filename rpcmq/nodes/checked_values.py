"""Values that plugged-in nodes give operators: JSON, within bounds."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from rpcmq.nodes.node import Node
from rpcmq.nodes.passage import Passage
from rpcmq.nodes.peer import Peer
from rpcmq.nodes.stop import Stop
from rpcmq.wire import Kind
from rpcmq.wire.body_fields import Body, mapping

__all__ = ["NodeAnswer", "answer_of", "numbers_of", "rows_of", "stop_of"]

#: Rows of a view that are made in one step, bytes of one, bytes of the answer of a control, and counters.
_ROWS_IN_ONE_STEP, _MAX_ROW_BYTES, _MAX_ANSWER_BYTES, _MAX_METRICS = 5, 64 << 10, 1 << 20, 50
#: Characters of the reason for which a call is stopped, and bytes of its details.
_MAX_TEXT, _MAX_DETAILS_BYTES = 2_000, 8 << 10


@dataclass(frozen=True, kw_only=True)
class NodeAnswer(Body):
    """The ANSWER of a control: whatever JSON object the node has made."""

    KIND = Kind.ANSWER

    value: Mapping[str, Any] = mapping()

    def encode(self) -> dict[str, Any]:
        """Return the JSON object."""
        return dict(self.value)


def answer_of(node: Node, now: float, name: str, peer: Peer, arguments: Mapping[str, Any]) -> NodeAnswer:
    """Have ``node`` do what an operator asks for.

    Raises:
        Exception: it has failed, or its answer is no JSON object, or too large.
    """
    answer = dict(node.control(now, name, peer, arguments))
    size = len(json.dumps(answer))
    if size > _MAX_ANSWER_BYTES:
        raise ValueError(f"the answer of control {name!r} has {size} bytes; at most {_MAX_ANSWER_BYTES} are allowed")
    return NodeAnswer(value=answer)


def stop_of(node: Node, passage: Passage) -> tuple[str, dict[str, Any]] | None:
    """The reason for which ``node`` stops a call, and details for its caller; None: it does not.

    Raises:
        Exception: it has failed, or says something else than that, or too much.
    """
    stop = node.stops(passage)
    if stop is None:
        return None
    if not isinstance(stop, Stop) or not isinstance(stop.text, str):
        raise TypeError(f"stops() has returned {stop!r:.100}: expected a Stop, or None")
    details = dict(stop.details)
    if (size := len(json.dumps(details))) > _MAX_DETAILS_BYTES:
        raise ValueError(f"the details of a Stop have {size} bytes; at most {_MAX_DETAILS_BYTES} are allowed")
    return stop.text[:_MAX_TEXT], details


def rows_of(rows: Iterator[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The next rows of a view; none: that was all.

    Raises:
        Exception: they cannot be made, or one is no JSON object, or too large.
    """
    some = [dict(row) for row in islice(rows, _ROWS_IN_ONE_STEP)]
    for row in some:
        size = len(json.dumps(row))
        if size > _MAX_ROW_BYTES:
            raise ValueError(f"a row of a view has {size} bytes; at most {_MAX_ROW_BYTES} are allowed")
    return some


def numbers_of(node: Node) -> dict[str, float]:
    """The counters of ``node``.

    Raises:
        Exception: it has failed, or one is no number.
    """
    found = dict(node.metrics())
    if len(found) > _MAX_METRICS:
        raise ValueError(f"{len(found)} metrics; at most {_MAX_METRICS} are allowed")
    for name, value in found.items():
        if not isinstance(name, str) or isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"metrics(): {name!r:.100} = {value!r:.100} is no number with a name")
    return found
