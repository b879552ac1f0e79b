"""The gevent hub of the current thread, if it has one. gevent is not imported for it: who uses it has loaded it."""

from __future__ import annotations

import sys
import time
from importlib import import_module
from typing import Any

from rpcmq.transport.originals import allocate_lock

__all__ = ["current_hub", "new_lock", "pause", "program_is_patched"]


def current_hub() -> Any | None:
    """The gevent hub of the current OS thread; None: it has none."""
    module = sys.modules.get("gevent._hub_local")
    return None if module is None else module.get_hub_if_exists()


def program_is_patched() -> bool:
    """Return whether gevent has patched blocking calls, so that waiting lets the hub run."""
    monkey = sys.modules.get("gevent.monkey")
    return monkey is not None and (monkey.is_module_patched("threading") or monkey.is_module_patched("socket"))


def pause(seconds: float) -> None:
    """Wait in this thread: in gevent where it has a hub, so that its other greenlets go on."""
    if current_hub() is None:
        # Looked up each time: a program that is patched later waits as it wants to.
        time.sleep(seconds)
    else:
        sys.modules["gevent"].sleep(seconds)


def new_lock() -> Any:
    """A lock on which the current OS thread, or greenlet of its hub, can wait until any thread releases it."""
    if current_hub() is None:
        return allocate_lock()
    return import_module("rpcmq.transport.hub_lock").HubLock()
