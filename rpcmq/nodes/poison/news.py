"""The news of deaths and quarantines that routers of a mesh tell each other, as JSON objects.

Clocks are not compared: times are told as ages, and are of the moment at which they arrive.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from rpcmq.nodes import ProtocolError
from rpcmq.nodes.poison.facts import Address, CallName, Death, Flight, Kill, Loss, Suspect

__all__ = [
    "MAX_FLIGHTS_TOLD", "age_of", "count_of", "death_of", "flights_of", "list_of", "loss_of", "quarantine_of",
    "serving_of", "text_of",
    "told_death", "told_flights", "told_loss", "told_quarantine", "told_serving",
]  # fmt: skip

#: Calls that are told of one death, and topics: the latest ones.
MAX_FLIGHTS_TOLD, _MAX_TOPICS = 100, 20
_MAX_TEXT, _MAX_KILLS, _MAX_KEYS = 300, 10, 8
_LONGEST = 1e9
_DESCRIPTION = ("host", "pid", "program", "key")
#: Addresses of which one message says the keys.
_MAX_SERVED = 5
#: Of the rows of a list that is told.
_MAX_BYTES = 24 << 10
Row = TypeVar("Row")


def told_loss(loss: Loss, now: float) -> dict[str, Any]:
    """``loss`` for other routers."""
    return {"process": loss.process, "instance": loss.instance, "age": now - loss.at}


def told_death(death: Death, now: float) -> dict[str, Any]:
    """``death`` for other routers."""
    return {
        "loss": told_loss(death.loss, now), "identity": death.identity, "router": death.router, "at_ms": death.at_ms,
        "description": dict(death.description), "sudden": death.is_sudden,
        "consumers": _that_fit([*topic, count] for topic, count in list(death.consumers.items())[:_MAX_TOPICS]),
    }  # fmt: skip


def _that_fit(rows: Iterable[Row]) -> list[Row]:
    """The first of ``rows``, as many as fit into a message beside each other."""
    fitting, size_bytes = [], 0
    for row in rows:
        size_bytes += len(json.dumps(row))
        if size_bytes > _MAX_BYTES:
            break
        fitting.append(row)
    return fitting


def told_flights(flights: list[Flight], now: float) -> list[dict[str, Any]]:
    """``flights`` for other routers, the latest of them if they are many."""
    latest = sorted(flights, key=lambda each: -each.given_at)[:MAX_FLIGHTS_TOLD]
    return _that_fit(
        {
            "call": _told_call(each.call), "age": now - each.given_at, "id": each.id,
            "caller": each.caller[:_MAX_TEXT], "attempt": each.attempt,
        }
        for each in latest
    )  # fmt: skip


def told_quarantine(suspect: Suspect, now: float) -> dict[str, Any]:
    """A quarantined call for other routers, with its story."""
    since = now if suspect.quarantined_at is None else suspect.quarantined_at
    place = suspect.call.place
    kills = _that_fit(
        {
            "death": told_death(replace(kill.death, consumers={place: kill.death.consumers.get(place, 1)}), now),
            "seconds": kill.seconds, "beside": kill.beside, "id": kill.id,
            "caller": kill.caller[:_MAX_TEXT], "spared": kill.spared,
        }
        for kill in suspect.kills
    )  # fmt: skip
    return {"call": _told_call(suspect.call), "age": now - since, "kills": kills}


def told_serving(serving: Mapping[Address, Iterable[str]]) -> list[list[Any]]:
    """The keys under which addresses are served, for other routers: as many messages as it takes."""
    rows = [[*address, sorted(keys)[:_MAX_KEYS]] for address, keys in serving.items()]
    return [rows[at : at + _MAX_SERVED] for at in range(0, len(rows), _MAX_SERVED)]


def _told_call(call: CallName) -> list[Any]:
    return [call.fingerprint, call.exchange, call.topic, call.server, call.method, call.format, call.size_bytes]


# --- and back ------------------------------------------------------------------------------------


def text_of(value: Any, name: str) -> str:
    """Read a text.

    Raises:
        ProtocolError: it is none, or too long.
    """
    if not isinstance(value, str) or len(value) > _MAX_TEXT:
        raise ProtocolError(f"{name}: expected a text of at most {_MAX_TEXT} characters", "poison")
    return value


def _number_of(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LONGEST:
        raise ProtocolError(f"{name}: expected a number from 0 to {_LONGEST:g}", "poison")
    return value


def age_of(value: Any) -> float:
    """Read how long ago something was (seconds).

    Raises:
        ProtocolError: it is no such number.
    """
    return _number_of(value, "age")


def count_of(value: Any, name: str) -> int:
    """Read a count.

    Raises:
        ProtocolError: it is none.
    """
    if type(value) is not int or not 0 <= value < 1 << 53:
        raise ProtocolError(f"{name}: expected a count", "poison")
    return value


def _object_of(value: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ProtocolError(f"{name}: expected an object", "poison")
    return value


def list_of(value: Any, name: str, most: int) -> list[Any]:
    """Read a list.

    Raises:
        ProtocolError: it is none, or too long.
    """
    if not isinstance(value, list) or len(value) > most:
        raise ProtocolError(f"{name}: expected a list of at most {most}", "poison")
    return value


def loss_of(value: Any, now: float) -> Loss:
    """Read what :func:`told_loss` has made.

    Raises:
        ProtocolError: it makes no sense.
    """
    told = _object_of(value, "loss")
    instance = told.get("instance")
    if instance is not None:
        host, pid, *_ = [*list_of(instance, "instance", 2), "", ""]
        instance = text_of(host, "instance"), text_of(pid, "instance")
    return Loss(now - age_of(told.get("age")), text_of(told.get("process"), "process"), instance)


def death_of(value: Any, now: float) -> Death:
    """Read what :func:`told_death` has made.

    Raises:
        ProtocolError: it makes no sense.
    """
    told = _object_of(value, "death")
    consumers = {}
    for row in list_of(told.get("consumers"), "consumers", _MAX_TOPICS):
        exchange, topic, count, *_ = [*list_of(row, "consumers", 3), None, None, None]
        consumers[text_of(exchange, "exchange"), text_of(topic, "topic")] = count_of(count, "consumers")
    description = _object_of(told.get("description"), "description")
    return Death(
        loss_of(told.get("loss"), now),
        text_of(told.get("identity"), "identity"),
        consumers,
        text_of(told.get("router"), "router"),
        count_of(told.get("at_ms"), "at_ms"),
        {name: text_of(description[name], name) for name in _DESCRIPTION if name in description},
        told.get("sudden") is True,
    )


def flights_of(value: Any, now: float) -> dict[str, Flight]:
    """Read what :func:`told_flights` has made.

    Raises:
        ProtocolError: it makes no sense.
    """
    flights = {}
    for each in list_of(value, "flights", MAX_FLIGHTS_TOLD):
        told = _object_of(each, "flight")
        call, given_at = _call_of(told.get("call")), now - age_of(told.get("age"))
        id, caller = text_of(told.get("id"), "id"), text_of(told.get("caller"), "caller")
        # Routers of earlier versions do not tell it.
        flight = Flight(call, given_at, id, caller, count_of(told.get("attempt", 0), "attempt"))
        flights[call.fingerprint] = flight
    return flights


def quarantine_of(value: Any, now: float) -> tuple[Suspect, float]:
    """Read what :func:`told_quarantine` has made: the call, and since when it is quarantined.

    Raises:
        ProtocolError: it makes no sense.
    """
    told = _object_of(value, "quarantine")
    suspect = Suspect(_call_of(told.get("call")))
    for each in list_of(told.get("kills"), "kills", _MAX_KILLS):
        row = _object_of(each, "kill")
        suspect.kills.append(
            Kill(
                death_of(row.get("death"), now), _number_of(row.get("seconds"), "seconds"),
                count_of(row.get("beside"), "beside"), text_of(row.get("id"), "id"),
                text_of(row.get("caller"), "caller"), spared=count_of(row.get("spared", 0), "spared"),
            )
        )  # fmt: skip
    if not suspect.kills:
        raise ProtocolError("kills: expected one at least", "poison")
    return suspect, now - age_of(told.get("age"))


def serving_of(value: Any) -> dict[Address, list[str]]:
    """Read what :func:`told_serving` has made.

    Raises:
        ProtocolError: it makes no sense.
    """
    serving: dict[Address, list[str]] = {}
    for row in list_of(value, "serving", _MAX_SERVED):
        *texts, keys = [*list_of(row, "serving", 4), None, None, None, None][:4]
        exchange, topic, server = (text_of(each, "serving") for each in texts)
        serving[exchange, topic, server] = [text_of(key, "key") for key in list_of(keys, "keys", _MAX_KEYS)]
    return serving


def _call_of(value: Any) -> CallName:
    row = list_of(value, "call", 7)
    if len(row) != 7:
        raise ProtocolError("call: expected 7 values", "poison")
    fingerprint, exchange, topic, server, method, form = (text_of(each, "call") for each in row[:6])
    return CallName(fingerprint, exchange, topic, server, method, form, count_of(row[6], "size_bytes"))
