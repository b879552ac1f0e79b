"""The examples of a service and a script, as their docstrings say that they are run."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from rpcmq.testing.processes import Program, RouterProcess

EXAMPLES = Path(__file__).parents[2] / "examples"
SERVE = ["-m", "rpcmq", "serve", "examples.compute_service:Compute", "--topic", "compute"]


SCRIPT = [sys.executable, "-m", "examples.script", "--user", "alice"]


@pytest.mark.integration
def test_the_script_reboots_what_is_not_active() -> None:
    with RouterProcess() as router:
        environment = {"RPCMQ_ROUTER": router.url, "PYTHONPATH": str(EXAMPLES.parent)}
        with Program([sys.executable, *SERVE], environment, "service") as service:
            service.expect("compute")
            # The second time all of them are, as what the first has cast was not lost at its end.
            for stopped in ("stopped", "active"):
                with Program(SCRIPT, environment) as script:
                    assert script.wait(40) == 0, script.said()
                    assert script.lines == ["i-1: active", f"i-2: {stopped}", "i-3: active"]


@pytest.mark.long
def test_the_script_says_why_it_could_not() -> None:
    with RouterProcess() as router:
        environment = {"RPCMQ_ROUTER": router.url, "PYTHONPATH": str(EXAMPLES.parent)}
        with Program(SCRIPT, environment) as script:
            assert script.wait(40) == 1
            (line,) = script.lines
            assert re.fullmatch(r"script: queued \d+\.\d s: no consumer on 'compute' \(never seen\)", line)


@pytest.mark.parametrize("name", ["flask_app.py", "fastapi_app.py", "script.py", "compute_service.py"])
def test_the_commands_in_an_example_name_what_there_is(name: str) -> None:
    source = (EXAMPLES / name).read_text()
    named = re.findall(r"^    \w.*examples\.(\w+)", source, re.MULTILINE)
    assert named and {f"{each}.py" for each in named} == {name}
