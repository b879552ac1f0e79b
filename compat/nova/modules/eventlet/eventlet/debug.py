"""Switches for debugging. Only ``hub_exceptions`` has an effect; gevent has its own ways for the rest."""

from __future__ import annotations

from typing import Any

__all__ = [
    "format_hub_listeners",
    "format_hub_timers",
    "hub_blocking_detection",
    "hub_exceptions",
    "hub_listener_stacks",
    "hub_prevent_multiple_readers",
    "hub_timer_stacks",
    "spew",
    "tpool_exceptions",
    "unspew",
]

_hub_exceptions = True


def hub_exceptions(state: bool = True) -> None:
    """Print a traceback for each exception that ends a green thread, or not."""
    global _hub_exceptions
    _hub_exceptions = bool(state)


def showing_hub_exceptions() -> bool:
    """Tell what ``hub_exceptions`` was set to; True at first."""
    return _hub_exceptions


def tpool_exceptions(state: bool = False) -> None:
    """Accepted and ignored: exceptions in tpool are raised at the caller and printed by nobody."""


def hub_listener_stacks(state: bool = False) -> None:
    """Accepted and ignored."""


def hub_timer_stacks(state: bool = False) -> None:
    """Accepted and ignored."""


def hub_prevent_multiple_readers(state: bool = True) -> None:
    """Accepted and ignored: gevent lets several green threads read one socket."""


def hub_blocking_detection(state: bool = False, resolution: float = 1) -> None:
    """Accepted and ignored; GEVENT_MONITOR_THREAD_ENABLE does this for gevent."""


def format_hub_listeners() -> str:
    """Give no text; ``gevent.util.format_run_info`` tells what runs."""
    return ""


def format_hub_timers() -> str:
    """Give no text."""
    return ""


def spew(trace_names: Any = None, show_values: bool = False) -> None:
    """Accepted and ignored."""


def unspew() -> None:
    """Accepted and ignored."""
