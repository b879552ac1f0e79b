"""A user's program is checked with mypy --strict against the wheel as it is installed, which is typed (py.typed)."""

from __future__ import annotations

import sys
import venv
import zipfile
from pathlib import Path

import pytest
from gevent import subprocess

# Each run of mypy reads all that rpcmq imports.
pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

ROOT = Path(__file__).parent.parent.parent
PROGRAM = Path(__file__).parent / "user_program.py"


def run(*command: str, cwd: Path) -> tuple[int, str]:
    ended = subprocess.run(
        command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, check=False
    )
    return ended.returncode, ended.stdout


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python of its own, in which nothing is installed but the wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    code, output = run(
        sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder), cwd=ROOT
    )
    assert code == 0, output
    venv.create(folder / "venv", symlinks=True)
    (packages,) = (folder / "venv").glob("lib/python*/site-packages")
    (wheel,) = folder.glob("rpcmq-*.whl")
    zipfile.ZipFile(wheel).extractall(packages)
    return str(folder / "venv" / "bin" / "python")


def check(python: str, program: str, folder: Path) -> tuple[int, str]:
    """Exit code and output of mypy, away from the checkout and its configuration."""
    (folder / "program.py").write_text(program)
    options = (
        "--strict",
        "--config-file=",
        "--python-executable",
        python,
        "--cache-dir",
        str(Path(python).parent / "cache"),
    )
    return run(sys.executable, "-m", "mypy", *options, "program.py", cwd=folder)


def test_wrong_lines_are_errors_and_right_ones_are_none(python, tmp_path):
    code, output = check(python, PROGRAM.read_text(), tmp_path)
    assert code == 0, output


def test_a_misspelt_keyword_and_the_remedy_are_told(python, tmp_path):
    program = 'from rpcmq import rpc\n\nrpc.call(None, "compute", {"method": "reboot"}, timout=5)\n'
    code, output = check(python, program, tmp_path)
    assert code == 1 and "Found 1 error in 1 file" in output, output
    assert 'program.py:3: error: Unexpected keyword argument "timout"; did you mean "timeout"?' in output
