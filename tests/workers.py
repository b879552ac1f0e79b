"""The distribution of tests over the workers of ``pytest -n``: each file in one, and all that needs Spark in one."""

from __future__ import annotations

from typing import Any

from xdist.scheduler import LoadScopeScheduling

#: In this order, before all others: what takes longest, so that no worker is left alone with it at the end.
_FIRST = (
    "tests/latency/jobs/",
    "tests/faults/",
    "tests/integration/",
    "tests/cli/",
    "tests/compat/",
    "tests/latency/",
    "tests/typing/",
    "tests/threads/",
    "tests/transport/",
    "tests/aio/",
    "tests/server/",
    "tests/programs/",
    "tests/docs/",
    "tests/examples/",
)


class ByFile(LoadScopeScheduling):  # type: ignore[misc]
    """Gives out files, not tests: what a file starts for its tests is started once.

    Groups by mark are no way to this: pytest 9 no longer lets pytest-xdist 3.8 write them into the tests' names, and
    then each test is a group of its own, without a warning.
    """

    def __init__(self, config: Any, log: Any) -> None:
        # Not the file with the most tests first: these are the quickest.
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        return _FIRST[0] if path.startswith(_FIRST[0]) else path


def rank(nodeid: str) -> int:
    """By which tests are sorted."""
    return next((n for n, start in enumerate(_FIRST) if nodeid.startswith(start)), len(_FIRST))
