"""Messages of syslog, as RFC 5424 has them in section 6."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime

__all__ = ["FACILITIES", "SEVERITIES", "MalformedMessage", "SyslogMessage", "parse_message"]

FACILITIES = (
    "kern",
    "user",
    "mail",
    "daemon",
    "auth",
    "syslog",
    "lpr",
    "news",
    "uucp",
    "cron",
    "authpriv",
    "ftp",
    "ntp",
    "audit",
    "alert",
    "clock",
    *(f"local{number}" for number in range(8)),
)
"""Names of the facilities, by their numbers: those that logger(1) and syslog.conf(5) use."""

SEVERITIES = ("emerg", "alert", "crit", "err", "warning", "notice", "info", "debug")
"""Names of the severities, by their numbers."""

_NIL = b"-"
_PRIORITY = re.compile(rb"<(0|[1-9][0-9]{0,2})>([1-9][0-9]{0,2})")
_TIMESTAMP = re.compile(
    rb"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?(Z|[+-][0-9]{2}:[0-9]{2})"
)
#: Fields of the header after the time, and the most bytes of each.
_NAMES = (("host", 255), ("app", 48), ("process_id", 128), ("message_id", 32))
_PRINTABLE = re.compile(rb"[!-~]+")
_SD_NAME = rb"[!#-<>-\\^-~]{1,32}"
_SD_PARAM = re.compile(rb" (" + _SD_NAME + rb')="((?:[^"\\\]]|\\.)*)"', re.DOTALL)
_SD_ELEMENT = re.compile(rb"\[(" + _SD_NAME + rb")((?:" + _SD_PARAM.pattern + rb")*)\]", re.DOTALL)
_ESCAPED = re.compile(rb'\\(["\\\]])')
_BOM = b"\xef\xbb\xbf"


class MalformedMessage(ValueError):
    """Bytes that are no message of RFC 5424; the text says why."""


@dataclass(frozen=True, slots=True)
class SyslogMessage:
    """A message.

    Attributes:
        facility: one of :data:`FACILITIES`.
        severity: one of :data:`SEVERITIES`.
        timestamp: as it was sent (RFC 3339); None: not known to the sender.
        host, app, process_id, message_id: who sent it, and of which kind it is; None: not given.
        structured_data: element -> parameter -> its values, in order.
        text: the message itself; what is not UTF-8 is escaped with backslashes.
    """

    facility: str
    severity: str
    timestamp: str | None = None
    host: str | None = None
    app: str | None = None
    process_id: str | None = None
    message_id: str | None = None
    structured_data: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    text: str = ""


def parse_message(data: bytes) -> SyslogMessage:
    """Return the message in ``data``, which has no frame around it.

    Raises:
        MalformedMessage: there is none of RFC 5424.
    """
    parts = data.split(b" ", 6)
    facility, severity = _priority(parts[0])
    if len(parts) < 7:
        names = ("time", *(name for name, _ in _NAMES), "structured data")
        raise MalformedMessage(f"it ends before its {names[len(parts) - 1]}")
    timestamp = _timestamp(parts[1])
    host, app, process_id, message_id = (
        _name(name, value, most) for (name, most), value in zip(_NAMES, parts[2:6], strict=True)
    )
    structured_data, rest = _structured_data(parts[6])
    if rest and not rest.startswith(b" "):
        raise MalformedMessage("there is no space between its structured data and its text")
    text = rest[1:].removeprefix(_BOM).decode(errors="backslashreplace")
    return SyslogMessage(facility, severity, timestamp, host, app, process_id, message_id, structured_data, text)


def _priority(value: bytes) -> tuple[str, str]:
    found = _PRIORITY.fullmatch(value)
    if not found:
        raise MalformedMessage("it does not begin with a priority and a version, as <165>1")
    priority, version = map(int, found.groups())
    if priority >= len(FACILITIES) * len(SEVERITIES):
        raise MalformedMessage(f"its priority is {priority}; the highest is {len(FACILITIES) * len(SEVERITIES) - 1}")
    if version != 1:
        raise MalformedMessage(f"its version is {version}; only 1 is known")
    facility, severity = divmod(priority, len(SEVERITIES))
    return FACILITIES[facility], SEVERITIES[severity]


def _timestamp(value: bytes) -> str | None:
    if value == _NIL:
        return None
    if _TIMESTAMP.fullmatch(value):
        text = value.decode()
        try:
            datetime.fromisoformat(text)
        except ValueError:
            pass  # no such day or hour: as a time of another form
        else:
            return text
    raise MalformedMessage(f"its time {_shown(value)} is none of RFC 3339, as 2003-10-11T22:14:15.003Z")


def _name(name: str, value: bytes, most: int) -> str | None:
    if len(value) > most:
        raise MalformedMessage(f"its {name} has {len(value)} bytes; at most {most} are allowed")
    if not _PRINTABLE.fullmatch(value):
        raise MalformedMessage(f"its {name} {_shown(value)} is not of printable ASCII")
    return None if value == _NIL else value.decode()


def _structured_data(data: bytes) -> tuple[dict[str, dict[str, list[str]]], bytes]:
    """Return the structured data at the beginning of ``data``, and what follows it."""
    if data.startswith(_NIL):
        return {}, data[1:]
    elements: dict[str, dict[str, list[str]]] = {}
    at = 0
    while found := _SD_ELEMENT.match(data, at):
        element = elements.setdefault(found[1].decode(), {})
        for name, value in _SD_PARAM.findall(found[2]):
            element.setdefault(name.decode(), []).append(_ESCAPED.sub(rb"\1", value).decode(errors="backslashreplace"))
        at = found.end()
    if at == 0 or data[at : at + 1] == b"[":
        raise MalformedMessage(f"its structured data {_shown(data[at:])} are malformed")
    return elements, data[at:]


def _shown(value: bytes) -> str:
    return repr(value[:40])[1:] + ("..." if len(value) > 40 else "")
