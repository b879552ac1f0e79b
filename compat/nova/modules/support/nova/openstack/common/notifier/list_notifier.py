"""A driver that passes each notification to those of ``list_notifier_drivers``."""

from __future__ import annotations

import logging
from typing import Any

from compat.nova import options

from nova.openstack.common import importutils

LOG = logging.getLogger(__name__)

options.register_nova_options("list_notifier_drivers")


def notify(*args: Any) -> None:
    """Pass ``([context,] message)`` on; what goes wrong in one is logged, and the next has its turn."""
    for name in options.value("list_notifier_drivers"):
        try:
            importutils.import_module(name).notify(*args)
        except Exception:
            LOG.exception("Problem attempting to send to notification system %s", name)
