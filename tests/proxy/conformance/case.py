"""The form of a case: requests of clients, responses of an origin, and expectations.

In a value of a field, ``{now+60}`` is the date a minute after the response is sent, and ``{url}`` the URL of the
request.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

Fields = tuple[tuple[str, str], ...]


class Level(Enum):
    """Whether the RFC has it that a cache must, or leaves it a choice whose better side is known."""

    REQUIRED = "required"
    OPTIONAL = "optional"


@dataclass(frozen=True)
class Response:
    """A response of the origin; ``status`` 0: it closes the connection without one.

    ``confirms``: it is 304, with ``confirmation``, where the request has the conditions that its validators answer.
    """

    fields: Fields = ()
    status: int = 200
    body: str | None = None
    confirms: bool = False
    confirmation: Fields = ()
    #: Bytes of Content-Length; None: those of the body.
    length: int | None = None


@dataclass(frozen=True)
class Step:
    """A request, the origin's response if it is asked, and what is expected.

    Attributes:
        request: fields of the request.
        method, suffix: of the request; ``suffix`` follows the path of the case.
        response: of the origin.
        wait: seconds before it.
        asked: whether the origin is asked; None: either way.
        served: number of the step, from 0, whose response the client gets; None: any.
        unserved: number of the step whose response the client does not get.
        status: of the response that the client gets; None: any.
        conditional: whether the origin gets a condition.
        has, lacks: fields that the client's response has (an empty value: any), and names that it lacks.
        sent, unsent: the same of the request that the origin gets.
        age: least and most seconds in Age.
        body: the body that the client gets.
    """

    request: Fields = ()
    method: str = "GET"
    suffix: str = ""
    response: Response = Response()
    wait: float = 0.0
    asked: bool | None = None
    served: int | None = None
    unserved: int | None = None
    status: int | None = None
    conditional: bool | None = None
    has: Fields = ()
    lacks: tuple[str, ...] = ()
    sent: Fields = ()
    unsent: tuple[str, ...] = ()
    age: tuple[int, int] | None = None
    body: str | None = None


@dataclass(frozen=True)
class Case:
    """A conversation.

    Attributes:
        name: words.
        rfc: number and section.
        level: of the expectations of its last step; those of the steps before it are its preparation.
        steps: of the conversation.
    """

    name: str
    rfc: str
    level: Level
    steps: tuple[Step, ...] = field(repr=False)


def fields(values: dict[str, str] | Iterable[tuple[str, str]] | None) -> Fields:
    """Fields of a dictionary or of pairs."""
    return tuple(values.items() if isinstance(values, dict) else values or ())
