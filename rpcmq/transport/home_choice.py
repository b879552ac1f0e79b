"""The choice of the home of a client: a gevent hub, where the program lives in gevent, else the plain thread."""

from __future__ import annotations

from importlib import import_module

from rpcmq.errors import ConfigError
from rpcmq.transport import originals
from rpcmq.transport.current_hub import current_hub, program_is_patched
from rpcmq.transport.home import Home
from rpcmq.transport.thread_home import thread_home

__all__ = ["gevent_can_live_here", "home_for"]


def home_for(shell: str) -> Home:
    """The home of a client that is made now, in this thread.

    Args:
        shell: ``"gevent"``: the hub of this thread, which is made if it has none; ``"threads"``: the plain thread of
            this process; ``"auto"``: that hub if this thread has one already or gevent has patched the program, else
            the plain thread.

    Raises:
        ConfigError: gevent is asked for, and cannot be imported.
    """
    if shell == "gevent" or (shell == "auto" and (current_hub() is not None or program_is_patched())):
        return _gevent_home()
    return thread_home()


def gevent_can_live_here() -> bool:
    """Return whether the program is not patched by another library than gevent, with which its hub cannot wait."""
    return program_is_patched() or not originals.program_is_patched()


def _gevent_home() -> Home:
    try:
        # Not before it is asked for: a program of plain threads needs no gevent.
        module = import_module("rpcmq.transport.gevent_home")
    except ImportError as error:
        raise ConfigError(
            f"shell = 'gevent' (a Service's own if nothing is said): gevent cannot be imported ({error}); install "
            "gevent, or use plain threads: RPCMQ_SHELL=threads, or rpcmq.threads"
        ) from error
    home: Home = module.GeventHome()
    return home
