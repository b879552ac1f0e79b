"""The kinds of process that services of OpenStack are: patched by eventlet or gevent, or of native threads.

To be imported first, and :func:`become` to be called before anything else is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


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


def in_thread_of_the_system(kind: str, use: Callable[[], T]) -> T:
    """Do ``use`` in a thread of the operating system beside the one of the program."""
    if kind == "eventlet":
        from eventlet import tpool

        return tpool.execute(use)
    if kind == "gevent":
        from gevent import get_hub

        return get_hub().threadpool.apply(use)
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor() as threads:
        return threads.submit(use).result()


def unless_held_up(use: Callable[[], T], text: str) -> T:
    """Do ``use``; some times again if it ends with a timeout of ``text``, for a busy machine may hold up anybody."""
    from oslo_messaging import MessagingTimeout

    for _ in range(4):
        try:
            return use()
        except MessagingTimeout as error:
            if text not in str(error):
                raise
    return use()


def transport(url: str) -> Any:
    """Return a transport of a configuration of its own."""
    import oslo_messaging
    from oslo_config import cfg
    from oslo_messaging import conffixture

    conf = cfg.ConfigOpts()
    conffixture.ConfFixture(conf)
    conf([])
    return oslo_messaging.get_rpc_transport(conf, url)
