"""A module of classes, as an application has one: what it defines may be allowed as a whole."""

from __future__ import annotations

import enum
import pathlib  # noqa: F401
import zipfile
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, NamedTuple
from zipfile import ZipFile

Imported = ZipFile
run = zipfile.is_zipfile
ordered = OrderedDict
pure = PurePath


class State(enum.Enum):
    ACTIVE = "active"


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


class Level(enum.IntEnum):
    LOW = 1


class Flavor(NamedTuple):
    name: str
    cpus: int


@dataclass
class Host:
    name: str
    state: State = State.ACTIVE
    flavors: list[Flavor] = field(default_factory=list)

    class Address(NamedTuple):
        text: str


@dataclass(frozen=True, slots=True)
class Frozen:
    name: str


class Bag(list[Any]):
    def __init__(self, items: Any = ()) -> None:
        super().__init__(items)


class Members(frozenset[Any]):
    pass


Alias = Host


def function() -> None:
    """Is no class."""


# --- exceptions ----------------------------------------------------------------------------------


class AppError(Exception):
    pass


class QuotaError(AppError):
    """Takes keyword arguments only."""

    def __init__(self, *, resource: str, limit: int) -> None:
        super().__init__(f"no more than {limit} {resource}")
        self.resource = resource
        self.limit = limit


class PlaceError(AppError):
    """Takes more arguments than it hands on."""

    def __init__(self, host: str, reason: str, code: int = 5) -> None:
        super().__init__(f"{host}: {reason}")
        self.host = host
        self.code = code


class SlottedError(AppError):
    __slots__ = ("host",)

    def __init__(self, host: str) -> None:
        super().__init__("slotted")
        self.host = host


class DiskError(OSError):
    def __init__(self, disk: str) -> None:
        super().__init__(5, "broken", disk)
        self.disk = disk


class OpaqueError(AppError):
    """Holds what cannot be carried, and takes other arguments than it hands on."""

    def __init__(self, a: str, b: str) -> None:
        super().__init__(a + b)
        self.lock = object()


class StopError(StopIteration):
    pass
