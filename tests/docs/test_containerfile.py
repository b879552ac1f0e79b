"""The command and the health check of docs/Containerfile, run without a container."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from rpcmq.testing.processes import Program
from tests.docs.pages import DOCS

TEXT = (DOCS / "Containerfile").read_text()
SETTINGS = dict(re.findall(r"^ENV (RPCMQ_\w+)=(\S+)$", TEXT, re.MULTILINE))


def command(instruction: str) -> list[str]:
    """The list after ``instruction``; ``python`` and ``rpcmq`` are those of the tests."""
    found = re.search(rf"^{instruction} .*?(\[.*\])$", TEXT, re.MULTILINE)
    assert found is not None
    program, *arguments = json.loads(found[1])
    return [str(Path(sys.executable).parent / program), *arguments]


@pytest.mark.integration
def test_the_health_check_follows_the_router(tmp_path: Path) -> None:
    keys = tmp_path / "etc"
    init = [str(Path(sys.executable).with_name("rpcmq")), "init", str(keys), "--listen", f"ipc://{tmp_path}/router"]
    with Program(init) as program:
        assert program.wait() == 0, program.said()
    start = [part.replace("/etc/rpcmq", str(keys)) for part in command("CMD")]
    assert "RPCMQ_ROUTER_HTTP" in SETTINGS
    with Program(start, SETTINGS | {"RPCMQ_ROUTER_HTTP": "127.0.0.1:0"}) as router:
        views = router.expect(r"views on http://([\d.:]+)")[1]
        check = [part.replace(SETTINGS["RPCMQ_ROUTER_HTTP"], views) for part in command("HEALTHCHECK")]
        with Program(check) as healthy:
            assert healthy.wait() == 0, healthy.said()
        router.kill()
        with Program(check) as unhealthy:
            assert unhealthy.wait() != 0


def test_it_is_not_run_as_root() -> None:
    (user,) = re.findall(r"^USER (\d+)$", TEXT, re.MULTILINE)
    assert f"--uid {user} " in TEXT and int(user) > 0


def test_what_it_copies_is_there() -> None:
    copied = [name for line in re.findall(r"^COPY (.*) \S+$", TEXT, re.MULTILINE) for name in line.split()]
    assert copied and [name for name in copied if not (DOCS.parent / name).exists()] == []
