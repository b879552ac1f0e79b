"""The package that is sent to a cluster."""

from __future__ import annotations

import tomllib
import zipfile
from pathlib import Path

import pytest

from rpcmq.cli import main
from rpcmq.latency.jobs.package import NEEDS, write_package

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("out") / "new"
    assert [path.name for path in write_package(out)] == ["rpcmq.zip", "rpcmq_latency.py", "requirements.txt"]
    return out


def test_the_zip_has_the_whole_package_and_nothing_else(package: Path) -> None:
    expected = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "rpcmq").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(package / "rpcmq.zip") as archive:
        assert archive.testzip() is None
        assert set(archive.namelist()) == expected
        assert archive.read("rpcmq/latency/schema.py") == (ROOT / "rpcmq/latency/schema.py").read_bytes()
    assert {"rpcmq/__init__.py", "rpcmq/cli/__init__.py", "rpcmq/latency/report/page.html"} <= expected


def test_the_same_package_is_the_same_bytes(package: Path, tmp_path: Path) -> None:
    write_package(tmp_path)
    assert (tmp_path / "rpcmq.zip").read_bytes() == (package / "rpcmq.zip").read_bytes()


def test_what_the_driver_needs_is_what_the_project_says(package: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    known = {*project["dependencies"], *(need for extra in project["optional-dependencies"].values() for need in extra)}
    assert set(NEEDS) <= known
    assert (package / "requirements.txt").read_text().splitlines() == list(NEEDS)


def test_the_command_says_how_to_start_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["latency", "package", "--out", str(tmp_path / "a b")])

    assert f"--py-files '{tmp_path}/a b/rpcmq.zip' '{tmp_path}/a b/rpcmq_latency.py' report" in capsys.readouterr().out


def test_the_command_says_where_it_cannot_write(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit, match="1"):
        main(["latency", "package", "--out", str(tmp_path / "file" / "below")])

    assert capsys.readouterr().err == f"rpcmq: {tmp_path}/file/below: Not a directory\n"
