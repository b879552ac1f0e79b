"""Presentation of the dispatch log: page, pictures and text for people; JSON for programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rpcmq.latency.report.model import Report

__all__ = ["METHODS_IN_DETAIL", "Report", "as_json", "summary", "write_report"]

#: Most methods shown on the page, by total time; further ``Report.method_windows`` are ignored.
METHODS_IN_DETAIL = 200


def write_report(report: Report, out: Path) -> list[Path]:
    """Write the page and its pictures into the directory ``out``, which is made if it is not there.

    Returns:
        The files: ``report.html``, which needs none of the others, then the pictures.

    Raises:
        OSError: a file cannot be written.
    """
    # Here and not above: what it draws with takes half a second to import.
    from rpcmq.latency.report.page import write

    return write(report, out)


def summary(report: Report) -> str:
    """The report in short, for a terminal: plain text of at most 100 columns, with a newline at its end."""
    from rpcmq.latency.report.text import text_of

    return text_of(report)


def as_json(report: Report) -> dict[str, Any]:
    """All of the report for programs, as JSON can carry it: see docs/latency-json.md."""
    from rpcmq.latency.report.document import document_of

    return document_of(report)
