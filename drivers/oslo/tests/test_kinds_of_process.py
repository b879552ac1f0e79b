"""Services and their forks of native threads, patched by eventlet, and patched by gevent."""

from __future__ import annotations

import pytest
from processes import Router, program

KINDS = pytest.mark.parametrize("kind", ["native", "eventlet", "gevent"])


def lines_of(lines: list[str]) -> list[str]:
    """The lines that a program itself has said: warnings of libraries are of other forms."""
    return [line for line in lines if line.split(" ")[0] in ("True", "False", "3", "9", "ended", "[0,")]


@KINDS
def test_a_service_that_calls_itself(router: Router, kind: str) -> None:
    with program("service", kind, router.url, PYTHONWARNINGS="ignore") as service:
        assert service.wait(90) == 0, "\n".join(service.lines)
        assert lines_of(service.lines) == ["True", "True", "9", "3", "True True", "ended"], "\n".join(service.lines)


@KINDS
def test_workers_are_forked_from_a_process_that_serves_and_calls(router: Router, kind: str) -> None:
    with program("forks", kind, router.url, PYTHONWARNINGS="ignore") as parent:
        assert parent.wait(90) == 0, "\n".join(parent.lines)
        expected = ["True", "True", "True", "[0, 0, 0]", "True", "ended"]
        assert lines_of(parent.lines) == expected, "\n".join(parent.lines)
