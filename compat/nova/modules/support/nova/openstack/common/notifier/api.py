"""Sending notifications through the drivers that ``notification_driver`` names.

To Essex this module is ``nova.notifier.api``, and ``notify`` and the drivers' ``notify`` have no context; from
Folsom on it comes first. Either form is taken, and goes on to the drivers as it came.
"""

from __future__ import annotations

import functools
import logging
import uuid
from collections.abc import Callable
from typing import Any

import compat.nova
from compat.nova import options, primitives

from nova.openstack.common import importutils, timeutils

LOG = logging.getLogger(__name__)

options.register_nova_options("notification_driver", "default_notification_level", "default_publisher_id")

WARN = "WARN"
INFO = "INFO"
ERROR = "ERROR"
CRITICAL = "CRITICAL"
DEBUG = "DEBUG"

log_levels = (DEBUG, WARN, INFO, ERROR, CRITICAL)

_drivers: dict[str, Any] | None = None


class BadPriorityException(Exception):
    """The priority is none of ``log_levels``."""


def publisher_id(service: str, host: str | None = None) -> str:
    """``service.host``, of this host if not said otherwise."""
    return f"{service}.{host or options.value('host')}"


def notify(*args: Any, **named: Any) -> None:
    """Send a notification: ``([context,] publisher_id, event_type, priority, payload)``.

    It goes to every driver as a dict of ``message_id``, ``publisher_id``, ``timestamp``, ``priority``, ``event_type``
    and ``payload``. What goes wrong in a driver is logged and goes no further.

    Raises:
        BadPriorityException: the priority is unknown.
        TypeError: the payload has no JSON form, or an argument is missing.
    """
    names = ("publisher_id", "event_type", "priority", "payload")
    with_context = "context" in named or len(args) + len(named) > len(names)
    values = dict(zip((("context",) if with_context else ()) + names, args, strict=False)) | named
    if missing := [name for name in names if name not in values]:
        raise TypeError(f"notify() needs {', '.join(missing)}")
    priority = values["priority"]
    if priority not in log_levels:
        raise BadPriorityException(f"{priority} not in valid priorities")
    message = {
        "message_id": str(uuid.uuid4()),
        # Made of JSON's types now, so that what cannot be sent is the caller's error.
        "payload": primitives.loads(primitives.dumps(_plain(values["payload"])), None),
        "publisher_id": values["publisher_id"],
        "event_type": values["event_type"],
        "priority": priority,
        "timestamp": str(timeutils.utcnow()),
    }
    for name, driver in _get_drivers().items():
        try:
            driver.notify(*([values["context"]] if with_context else []), message)
        except Exception:
            LOG.exception("Problem '%s' attempting to send to notification system %s", message["event_type"], name)


def _plain(payload: Any) -> Any:
    # A decorator's payload has the exception and whatever objects the method was called with.
    return primitives.to_primitive(payload, convert_instances=True)


def notify_decorator(name: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    """``fn`` so that each call is notified as the event ``name`` before it; for ``monkey_patch_modules``."""

    @functools.wraps(fn)
    def notified(*args: Any, **kwargs: Any) -> Any:
        said = [options.value("default_publisher_id"), name, options.value("default_notification_level")]
        said.append({"args": [*args], "kwarg": dict(kwargs)})
        context = next((each for each in (*args, *kwargs.values()) if hasattr(each, "to_dict")), None)
        if compat.nova.era() in ("cactus", "diablo", "essex"):
            notify(*said)
        else:
            notify(context, *said)
        return fn(*args, **kwargs)

    return notified


def _get_drivers() -> dict[str, Any]:
    """The configured drivers by name, imported at first use."""
    global _drivers
    names = options.value("notification_driver")
    names = [names] if isinstance(names, str) else [*(names or ())]
    if _drivers and compat.nova.era() in ("cactus", "diablo", "essex"):
        # There was one, and the configuration was looked at for each notification.
        _drivers = {name: driver for name, driver in _drivers.items() if name in names}
    if _drivers is None or (names and {*names} - {*_drivers}):
        _drivers = _drivers or {}
        for name in names:
            add_driver(name)
    return _drivers


def add_driver(notification_driver: Any) -> None:
    """Add a driver: a module's name, or what has ``notify``. One that cannot be imported is logged."""
    global _drivers
    _drivers = {} if _drivers is None else _drivers
    if not isinstance(notification_driver, str):
        _drivers[str(notification_driver)] = notification_driver
        return
    try:
        _drivers[notification_driver] = _import(notification_driver)
    except ImportError:
        LOG.exception("Failed to load notifier %s. These notifications will not be sent.", notification_driver)


def _import(name: str) -> Any:
    try:
        return importutils.import_module(name)
    except ImportError:
        # A class, or an object in a module.
        return importutils.import_class(name)


def _reset_drivers() -> None:
    """Look at the configuration again; for tests."""
    global _drivers
    _drivers = None
