"""Translate a router's names of calls, casts and processes into those of the drill's history.

Each call and cast of a drill has a trace id that stands for its id, and each process says under which link the router
knows it: the router's own events have those.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b

from rpcmq.drill.history import Event, What

__all__ = ["ROUTER", "named", "trace_id_of", "traceparent_of"]

#: The router's name.
ROUTER = "router"


def trace_id_of(id: str) -> str:
    """The trace id of the call or cast ``id``, 32 hexadecimal digits."""
    return blake2b(id.encode(), digest_size=16).hexdigest()


def traceparent_of(id: str) -> str:
    """The W3C traceparent of the call or cast ``id``."""
    trace_id = trace_id_of(id)
    return f"00-{trace_id}-{trace_id[:16]}-01"


def named(events: Iterable[Event]) -> Iterator[Event]:
    """``events`` by time, with those of a real router in the words of the others.

    What is of a call or a process that nobody else has written of is left out: a subscriber, a look at the router.
    """
    ids: dict[str, str] = {}
    #: The router's name of a link -> the life of the process.
    lives: dict[str, str] = {}
    for event in events:
        if event.process == ROUTER:
            yield from _in_words(event, ids, lives)
            continue
        if event.what == What.SUBMIT:
            ids[trace_id_of(event.id)] = event.id
        elif event.what == What.LINKED and "link" in event.fields:
            lives[event.fields["link"]] = event.process
        yield event


def _in_words(event: Event, ids: dict[str, str], lives: dict[str, str]) -> Iterator[Event]:
    names = lives if event.what == What.DECLARED else ids
    id = names.get(event.id)
    if id is None:
        return
    fields = event.fields
    if "to" in fields:
        fields = fields | {"to": lives.get(fields["to"], fields["to"])}
    yield event._replace(id=id, fields=fields)
