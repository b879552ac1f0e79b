"""Logging as Nova did it: more levels, and records that say for whom something was done.

``getLogger`` gives loggers that take the keywords ``context`` and ``instance`` and have ``audit`` and ``warn``.
To Essex this module is called ``nova.log``, stands in for ``logging`` itself, and is used as that is:
``log.getLogger``, ``log.debug``, ``log.INFO``, ``log.Formatter``.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import logging
import logging.config
import logging.handlers
import os
import sys
from collections.abc import Callable, MutableMapping
from logging import (
    CRITICAL,
    DEBUG,
    ERROR,
    FATAL,
    INFO,
    NOTSET,
    WARN,
    WARNING,
    FileHandler,
    Formatter,
    Handler,
    StreamHandler,
    basicConfig,
    getLevelName,
)
from logging.handlers import SysLogHandler, WatchedFileHandler
from typing import Any

import compat.nova
from compat.nova import options

from nova.openstack.common import cfg, local

__all__ = [
    "AUDIT", "CRITICAL", "DEBUG", "ERROR", "FATAL", "INFO", "NOTSET", "TRACE", "WARN", "WARNING", "ContextAdapter",
    "ContextFormatter", "FileHandler", "Formatter", "Handler", "PublishErrorsHandler", "StreamHandler",
    "SysLogHandler", "WatchedFileHandler",
    "WritableLogger", "audit", "basicConfig", "critical", "debug", "error", "exception", "fatal", "getLevelName",
    "getLogger", "info", "log", "logging_excepthook", "reset", "set_defaults", "setup", "warn", "warning",
]  # fmt: skip

AUDIT = INFO + 1
TRACE = DEBUG // 2
logging.addLevelName(AUDIT, "AUDIT")
logging.addLevelName(TRACE, "TRACE")

log_opts: list[cfg.Opt] = [
    cfg.StrOpt(
        "logging_context_format_string",
        default="%(asctime)s %(levelname)s %(name)s [%(request_id)s %(user_id)s %(project_id)s] "
        "%(instance)s%(message)s",
        help="format of a record that has a context",
    ),
    cfg.StrOpt(
        "logging_default_format_string",
        default="%(asctime)s %(levelname)s %(name)s [-] %(instance)s%(message)s",
        help="format of a record that has none",
    ),
    cfg.StrOpt(
        "logging_debug_format_suffix", default="from (pid=%(process)d) %(funcName)s %(pathname)s:%(lineno)d",
        help="what follows a record of the debug level",
    ),
    cfg.ListOpt("default_log_levels", default=["sqlalchemy=WARN", "boto=WARN", "suds=INFO"], help="logger=LEVEL"),
    cfg.BoolOpt("publish_errors", default=False, help="send errors as notifications"),
    cfg.StrOpt("instance_format", default="[instance: %(uuid)s] ", help="how a record names an instance"),
    cfg.StrOpt("instance_uuid_format", default="[instance: %(uuid)s] ", help="how a record names an instance by UUID"),
    cfg.StrOpt("logfile_mode", default="0644", help="permissions of a log file"),
]  # fmt: skip


def _configuration() -> Any:
    """Return the object holding the options: to Essex, the tree's flags if options can be registered on them."""
    if compat.nova.era() in ("cactus", "diablo", "essex"):
        flags = importlib.import_module("nova.flags").FLAGS
        if hasattr(flags, "register_opt") and getattr(flags, "_state", None) is not cfg.CONF._state:
            return flags
    return cfg.CONF


CONF: Any = _configuration()
for _opt in (*cfg.CommonConfigOpts.common_cli_opts, *cfg.CommonConfigOpts.logging_cli_opts, *log_opts):
    # A tree's own configuration object knows nothing of what may be taken over.
    if _opt.dest not in CONF:
        CONF.register_opt(_opt, **({"soft": True} if hasattr(CONF, "_state") else {}))

_EXTRA = ("context", "instance", "instance_uuid")


class ContextAdapter(logging.LoggerAdapter[logging.Logger]):
    """A logger whose methods take ``context``, ``instance`` (a dict or object with ``uuid``) and ``instance_uuid``.

    Without ``context``, that of the green thread (``local.store.context``) is used.
    """

    warn = logging.LoggerAdapter.warning
    fatal = logging.LoggerAdapter.critical

    def __init__(self, logger: logging.Logger, name: str | None = None, version: str | None = None) -> None:
        super().__init__(logger, {"project": name, "version": version})

    def audit(self, msg: Any, *args: Any, **kwargs: Any) -> None:
        """Log what happened to whom: more important than info."""
        # The caller is whose place the record has, not this line.
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1
        self.log(AUDIT, msg, *args, **kwargs)

    def setup_from_flags(self) -> None:
        """Like :func:`setup`: after the options changed (Diablo)."""
        setup()

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Turn our keywords into attributes of the record."""
        context, instance, uuid = (kwargs.pop(name, None) for name in _EXTRA)
        extra = {**(kwargs.get("extra") or {}), **(self.extra or {}), "instance": _instance_text(instance, uuid)}
        if context is None:
            context = getattr(local.store, "context", None)
        if context is not None:
            extra["context"] = context
        kwargs["extra"] = extra
        return msg, kwargs

    def addHandler(self, handler: Handler) -> None:
        """See :mod:`logging`."""
        self.logger.addHandler(handler)

    def removeHandler(self, handler: Handler) -> None:
        """See :mod:`logging`."""
        self.logger.removeHandler(handler)

    @property
    def handlers(self) -> list[Handler]:
        """Handlers of the logger itself."""
        return self.logger.handlers

    @property
    def level(self) -> int:
        """The level that was set."""
        return self.logger.level


def _instance_text(instance: Any, uuid: str | None) -> str:
    if instance is not None:
        uuid = instance.get("uuid") if hasattr(instance, "get") else getattr(instance, "uuid", str(instance))
    return CONF.instance_uuid_format % {"uuid": uuid} if uuid else ""


@functools.cache
def getLogger(name: str | None = "nova", version: str | None = None) -> ContextAdapter:
    """The logger of that name; the same each time."""
    return ContextAdapter(logging.getLogger(name), name, version)


getLazyLogger = getLogger


class ContextFormatter(Formatter):
    """Formats a record by whether it has a context."""

    def format(self, record: logging.LogRecord) -> str:
        """See :class:`logging.Formatter`."""
        context = getattr(record, "context", None)
        values: dict[str, Any] = {"request_id": "-", "user_id": "-", "project_id": "-", "instance": ""}
        if context is not None:
            values |= context if isinstance(context, dict) else context.to_dict()
        for name, value in values.items():
            # Other libraries' records have none of these; a context never hides a record's own.
            record.__dict__.setdefault(name, value)
        template = CONF.logging_context_format_string if context is not None else CONF.logging_default_format_string
        if record.levelno == DEBUG and CONF.logging_debug_format_suffix:
            template = f"{template} {CONF.logging_debug_format_suffix}"
        return Formatter(template, self.datefmt).format(record)


LegacyNovaFormatter = LegacyFormatter = ContextFormatter


def setup(product_name: str = "nova") -> None:
    """Send the records where the options say: a file, syslog, standard error."""
    if CONF.log_config:
        logging.config.fileConfig(CONF.log_config, disable_existing_loggers=False)
        return
    sys.excepthook = logging_excepthook
    root = logging.getLogger()
    for old in [handler for handler in root.handlers if getattr(handler, "of_nova", False)]:
        root.removeHandler(old)
        old.close()
    handlers: list[Any] = []
    if CONF.use_syslog:
        facility = SysLogHandler.facility_names[CONF.syslog_log_facility.lower().removeprefix("log_")]
        handlers.append(SysLogHandler(address="/dev/log", facility=facility))
    if path := _log_path():
        handlers.append(WatchedFileHandler(path))
    handlers = handlers or [StreamHandler()]
    if CONF.publish_errors:
        handlers.append(PublishErrorsHandler(ERROR))
    for handler in handlers:
        handler.of_nova = True
        handler.setFormatter(ContextFormatter(datefmt=CONF.log_date_format))
        root.addHandler(handler)
    root.setLevel(DEBUG if CONF.debug else INFO if CONF.verbose else WARNING)
    for pair in CONF.default_log_levels:
        name, _, level = pair.partition("=")
        logging.getLogger(name).setLevel(level)


def reset() -> None:
    """Like :func:`setup`: after the options changed (Diablo)."""
    setup()


def set_defaults(logging_context_format_string: str) -> None:
    """Another format of records that have a context."""
    CONF.set_default("logging_context_format_string", logging_context_format_string)


def _log_path(binary: str | None = None) -> str | None:
    file = CONF.log_file or CONF.get("logfile")
    directory = CONF.log_dir or CONF.get("logdir")
    if file:
        return os.path.join(directory, file) if directory else str(file)
    if directory:
        program = binary or os.path.basename(inspect.stack()[-1][1])
        return f"{os.path.join(directory, program)}.log"
    return None


def logging_excepthook(kind: type[BaseException], value: BaseException, tb: Any) -> None:
    """Log what ends the program."""
    getLogger().critical("%s", value, exc_info=(kind, value, tb) if CONF.verbose or CONF.debug else None)


class PublishErrorsHandler(Handler):
    """Sends each record as a notification; with the option ``publish_errors``, the errors."""

    def emit(self, record: logging.LogRecord) -> None:
        """Send it, unless notifications are themselves logged."""
        from nova.openstack.common.notifier import api

        drivers = options.value("notification_driver")
        if any(str(name).endswith("log_notifier") for name in ([drivers] if isinstance(drivers, str) else drivers)):
            return
        context = () if compat.nova.era() in ("cactus", "diablo", "essex") else (None,)
        api.notify(*context, "error.publisher", "error_notification", api.ERROR, {"error": record.msg})


class WritableLogger:
    """A logger as a file, one record a line: for ``wsgi`` servers."""

    def __init__(self, logger: Any, level: int = INFO) -> None:
        self.logger = logger
        self.level = level

    def write(self, msg: str) -> None:
        """Log a line."""
        self.logger.log(self.level, msg.rstrip("\n"))

    def flush(self) -> None:
        """Nothing is kept back."""


def _of_root(name: str) -> Callable[..., None]:
    def say(msg: Any, *args: Any, **kwargs: Any) -> None:
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1
        getattr(getLogger(None), name)(msg, *args, **kwargs)

    say.__name__, say.__doc__ = name, f"``{name}`` of the root logger."
    return say


audit, critical, debug, error, exception, fatal, info, log, warn, warning = (
    _of_root(name)
    for name in ("audit", "critical", "debug", "error", "exception", "fatal", "info", "log", "warn", "warning")
)
