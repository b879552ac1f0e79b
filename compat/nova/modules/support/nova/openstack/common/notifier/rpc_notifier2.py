"""As ``rpc_notifier``, with topics of its own and each message in an envelope (Grizzly+)."""

from __future__ import annotations

from typing import Any

from nova.openstack.common import cfg
from nova.openstack.common.notifier import rpc_notifier

_GROUP = "rpc_notifier2"
_TOPICS = cfg.ListOpt("topics", default=["notifications"], help="topics of notifications, without the priority")

cfg.CONF.register_opt(_TOPICS, _GROUP)


def notify(*args: Any) -> None:
    """Send ``([context,] message)``; what goes wrong is logged."""
    rpc_notifier.send(args, cfg.CONF.rpc_notifier2.topics, envelope=True)
