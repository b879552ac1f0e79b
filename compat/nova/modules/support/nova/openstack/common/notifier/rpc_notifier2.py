"""As ``rpc_notifier``, with each message in an envelope (Grizzly+)."""

from __future__ import annotations

from typing import Any

from nova.openstack.common.notifier import rpc_notifier


def notify(*args: Any) -> None:
    """Send ``([context,] message)``; what goes wrong is logged."""
    rpc_notifier.send(args, envelope=True)
