"""The kinds of process that services of OpenStack are: patched by eventlet or gevent, or of native threads.

To be imported first, and :func:`become` to be called before anything else is.
"""

from __future__ import annotations

import sys
from typing import Any


def become(kind: str) -> None:
    """Make this process one of ``kind``: "native", "eventlet" or "gevent"."""
    if kind == "eventlet":
        import eventlet

        eventlet.monkey_patch()
    elif kind == "gevent":
        from gevent import monkey

        monkey.patch_all()
    else:
        assert kind == "native"
        # As Nova does in this mode.
        forbidden: dict[str, Any] = {"eventlet": None, "gevent": None, "greenlet": None}
        sys.modules.update(forbidden)
        from oslo_service import backend

        backend.init_backend(backend.BackendType.THREADING)


def begin_child(kind: str) -> None:
    """Do what oslo.service does in a child that it has forked."""
    if kind == "eventlet":
        import eventlet

        # The parent's would be shared.
        eventlet.hubs.use_hub()


def transport(url: str) -> Any:
    """Return a transport of a configuration of its own."""
    import oslo_messaging
    from oslo_config import cfg
    from oslo_messaging import conffixture

    conf = cfg.ConfigOpts()
    conffixture.ConfFixture(conf)
    conf([])
    return oslo_messaging.get_rpc_transport(conf, url)
