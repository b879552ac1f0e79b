"""Options that oslo.messaging registers with the global configuration only, and reads from any."""

from __future__ import annotations

import importlib
from typing import Any, Final

__all__ = ["register_global_options"]

#: Modules of oslo.messaging, the name of the options in each, which is that of their group. 17 has no tracing.
_LISTS: Final = (
    ("oslo_messaging._metrics.client", "oslo_messaging_metrics"),
    ("oslo_messaging._tracing.client", "oslo_messaging_tracing"),
)


def register_global_options(conf: Any) -> None:
    """Register them with ``conf``: without them the first call over a configuration of its own fails.

    Tools and tests have one, and programs that talk to several clouds. A service with the global one has them already.
    """
    for module, name in _LISTS:
        try:
            options = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            # This release of oslo.messaging has none, and so reads none.
            continue
        conf.register_opts(options, group=name)
