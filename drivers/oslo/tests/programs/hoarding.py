"""A server that is delivered more than it has workers for: its driver cannot see how many those are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oslo_messaging.rpc.server import RPCServer

__all__ = ["HoardingServer"]


class HoardingServer(RPCServer):
    """Its listener calls a function of nobody in its place, and so is delivered as much as the configuration says."""

    def _create_listener(self) -> Any:
        listener = super()._create_listener()
        start = listener.start

        def start_unseen(callback: Callable[[list[Any]], None]) -> None:
            def call(messages: list[Any]) -> None:
                callback(messages)

            start(call)

        listener.start = start_unseen
        return listener
