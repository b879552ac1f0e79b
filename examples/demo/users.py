"""The users: they boot, reboot and look, many at once, and remember what they were told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any

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


class Users:
    """``crowd`` users who boot ``boots`` instances between them.

    Args:
        on_boot: called after each boot with the number of boots that have ended.
    """

    def __init__(self, client: rpcmq.Client, crowd: int, boots: int, seed: int, on_boot: Callable[[int], None]) -> None:
        self._client = client
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

    def run(self) -> None:
        """Returns when all is done."""
        users = [gevent.spawn(self._user, f"user-{number}") for number in range(self._crowd)]
        try:
            gevent.joinall(users, raise_error=True)
        finally:
            gevent.killall(users)

    def _user(self, name: str) -> None:
        mine: list[dict[str, Any]] = []
        while (number := next(self._numbers)) < self._boots:
            # What is asked for depends on the seed and the number only, not on who comes first.
            chance = Random(f"{self._seed} {number}")
            context = RequestContext(name, f"project-{number % 5}")
            self._boot(context, number, chance, mine)
            if mine:
                self._use(context, number, chance, mine)

    def _boot(self, context: RequestContext, number: int, chance: Random, mine: list[dict[str, Any]]) -> None:
        flavor = _TOO_LARGE if number % 200 == 20 else chance.choice(_FLAVORS)
        image = f"image-{chance.randrange(9)}"
        instance = self._ask(context, "create_instance", name=f"vm-{number}", image_id=image, flavor=flavor)
        if instance is not None:
            mine.append(instance)
            self.hosts[instance["id"]] = instance["host"]
            if instance["image"]["attempt"]:
                self.done_again[instance["image"]["verified_by"]] += 1
        self.ends[number] += 1
        self._on_boot(len(self.ends))

    def _use(self, context: RequestContext, number: int, chance: Random, mine: list[dict[str, Any]]) -> None:
        self._ask(context, "reboot_instance", instance_id=chance.choice(mine)["id"])
        if number % 8 == 3:
            self._ask(context, "get_diagnostics", instance_id=chance.choice(mine)["id"])
        if number % 200 == 30:
            self._ask(context, "get_diagnostics", instance_id=999_999_999)
        if number % 200 == 40:
            self._ask(context, "change_security_rule", group="default")
        if number % 200 == 50:
            self._list(context, chance.choice(mine)["host"])

    def _ask(self, context: RequestContext, method: str, **args: Any) -> Any:
        self.started[method] += 1
        try:
            answer = self._client.call(context, "api", {"method": method, "args": args}, timeout=_PATIENCE)
        except (CloudError, RpcError) as error:
            self._remember(method, error)
            return None
        self.ok[method] += 1
        return answer

    def _list(self, context: RequestContext, host: str) -> None:
        self.started["list_instances"] += 1
        message = {"method": "list_instances", "args": {"host": host}}
        try:
            for _ in self._client.multicall(context, "api", message, timeout=_PATIENCE):
                self.ok["instances listed"] += 1
        except (CloudError, RpcError) as error:
            self._remember("list_instances", error)
        else:
            self.ok["list_instances"] += 1

    def _remember(self, method: str, error: Exception) -> None:
        self.told.append(Told(method, type(error).__name__, str(error)))
