"""Silence Spark's Python logging of errors that it raises, too."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["quiet"]


@contextmanager
def quiet() -> Iterator[None]:
    """Within, pyspark and py4j log nothing of their own."""
    from pyspark.logger import PySparkLogger

    # py4j has the root logger write a traceback of each answer that did not come.
    root = logging.getLogger()
    root.addFilter(_is_not_py4j)
    # pyspark writes errors in a query as JSON to stderr.
    loggers = [PySparkLogger.getLogger(f"{kind}QueryContextLogger") for kind in ("SQL", "DataFrame")]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled
        root.removeFilter(_is_not_py4j)


def _is_not_py4j(record: logging.LogRecord) -> bool:
    return "/py4j/" not in record.pathname
