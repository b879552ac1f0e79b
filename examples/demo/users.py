"""The users: they boot, reboot and look, many at once, and remember what they were told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count, cycle, islice
from random import Random
from time import monotonic
from typing import Any, NamedTuple

import gevent

import rpcmq
from examples.demo.context import RequestContext
from examples.demo.exceptions import CloudError
from rpcmq.errors import RpcError

_FLAVORS = ({"name": "m1.tiny", "memory_mb": 512}, {"name": "m1.small", "memory_mb": 2048})
_TOO_LARGE = {"name": "m1.moon", "memory_mb": 1 << 40}
_PATIENCE = 30.0


@dataclass(frozen=True)
class Told:
    """One error as it reached the one who had asked."""

    method: str
    error: str
    text: str


class Boot(NamedTuple):
    """When a user asked for an instance, and had the answer (seconds, by ``monotonic``)."""

    asked: float
    answered: float


class Users:
    """``crowd`` users who boot ``boots`` instances between them.

    Args:
        clients: one at each router; the users take turns.
        on_boot: called after each boot with the number of boots that have ended.
    """

    def __init__(
        self,
        clients: Sequence[rpcmq.Client],
        crowd: int,
        boots: int,
        seed: int,
        on_boot: Callable[[int], None],
    ) -> None:
        self._clients = clients
        self._crowd = crowd
        self._boots = boots
        self._seed = seed
        self._on_boot = on_boot
        self._numbers = count()
        self.started: Counter[str] = Counter()
        self.ok: Counter[str] = Counter()
        self.told: list[Told] = []
        #: The number of ends of each boot, and the hosts of the instances that were booted.
        self.ends: Counter[int] = Counter()
        self.hosts: dict[int, str] = {}
        #: Image checks that were given to a second node, by the node that did them.
        self.done_again: Counter[str] = Counter()
        #: Those that went well.
        self.boots: list[Boot] = []

    def run(self) -> None:
        """Returns when all is done."""
        clients = islice(cycle(self._clients), self._crowd)
        users = [gevent.spawn(self._user, f"user-{number}", client) for number, client in enumerate(clients)]
        try:
            gevent.joinall(users, raise_error=True)
        finally:
            gevent.killall(users)

    def _user(self, name: str, client: rpcmq.Client) -> None:
        mine: list[dict[str, Any]] = []
        while (number := next(self._numbers)) < self._boots:
            # What is asked for depends on the seed and the number only, not on who comes first.
            chance = Random(f"{self._seed} {number}")
            context = RequestContext(name, f"project-{number % 5}")
            user = _User(self, client, context)
            self._boot(user, number, chance, mine)
            if mine:
                self._use(user, number, chance, mine)

    def _boot(self, user: _User, number: int, chance: Random, mine: list[dict[str, Any]]) -> None:
        flavor = _TOO_LARGE if number % 200 == 20 else chance.choice(_FLAVORS)
        image = f"image-{chance.randrange(9)}"
        asked = monotonic()
        instance = user.ask("create_instance", name=f"vm-{number}", image_id=image, flavor=flavor)
        if instance is not None:
            self.boots.append(Boot(asked, monotonic()))
            mine.append(instance)
            self.hosts[instance["id"]] = instance["host"]
            if instance["image"]["attempt"]:
                self.done_again[instance["image"]["verified_by"]] += 1
        self.ends[number] += 1
        self._on_boot(len(self.ends))

    def _use(self, user: _User, number: int, chance: Random, mine: list[dict[str, Any]]) -> None:
        user.ask("reboot_instance", instance_id=chance.choice(mine)["id"])
        if number % 8 == 3:
            user.ask("get_diagnostics", instance_id=chance.choice(mine)["id"])
        if number % 200 == 30:
            user.ask("get_diagnostics", instance_id=999_999_999)
        if number % 200 == 40:
            user.ask("change_security_rule", group="default")
        if number % 200 == 50:
            user.list(chance.choice(mine)["host"])

    def remember(self, method: str, error: Exception) -> None:
        """Keep an error as the user was told it."""
        self.told.append(Told(method, type(error).__name__, str(error)))


@dataclass(frozen=True)
class _User:
    """One of them, with one context."""

    books: Users
    client: rpcmq.Client
    context: RequestContext

    def ask(self, method: str, **args: Any) -> Any:
        """Call; returns None after an error."""
        self.books.started[method] += 1
        try:
            answer = self.client.call(self.context, "api", {"method": method, "args": args}, timeout=_PATIENCE)
        except (CloudError, RpcError) as error:
            self.books.remember(method, error)
            return None
        self.books.ok[method] += 1
        return answer

    def list(self, host: str) -> None:
        """Read the whole stream of a host's instances."""
        self.books.started["list_instances"] += 1
        message = {"method": "list_instances", "args": {"host": host}}
        try:
            for _ in self.client.multicall(self.context, "api", message, timeout=_PATIENCE):
                self.books.ok["instances listed"] += 1
        except (CloudError, RpcError) as error:
            self.books.remember("list_instances", error)
        else:
            self.books.ok["list_instances"] += 1
