"""``rpcmq doctor`` on the files of plugged-in nodes: it says what the router will say, and writes nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from rpcmq import Client
from rpcmq.cli.doctor_nodes import node_findings
from rpcmq.config import load_router_config
from rpcmq.core.router.actions import LogEvent
from rpcmq.server.node_file import NodeFile
from rpcmq.server.node_file_format import content_of
from rpcmq.testing import eventually
from rpcmq.testing.processes import RouterProcess

pytestmark = pytest.mark.integration

ROWS = [b'["a",{"x":1}]', b'["b",{}]']
WHOLE = content_of("poison", ROWS)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "state"
    made.mkdir()
    return made


@pytest.fixture
def path(folder: Path) -> Path:
    return folder / "poison.state"


def config_for(path: Path) -> Path:
    file = path.parent.parent / "router.toml"
    file.write_text(f'[[node]]\ntype = "poison"\nfile = "{path}"\n')
    return file


def content_of_folder(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Each file with its number, its mode, and when it was written last."""
    files = {each.name: each.lstat() for each in folder.glob("*")}
    return {name: (status.st_ino, status.st_mode, status.st_mtime_ns) for name, status in files.items()}


def found(path: Path) -> tuple[str, str]:
    """The level and the text about the file ``path``; its folder is as it was."""
    before = content_of_folder(path.parent)
    config = load_router_config(str(config_for(path)), {}, {})
    ((level, _, text, todo),) = [row for row in node_findings(config) if row[1] == "node file"]
    assert content_of_folder(path.parent) == before and bool(todo) == (level == "fail")
    return level, text


def test_a_file_that_is_not_there_yet_is_no_fault(path: Path) -> None:
    assert found(path) == ("ok", f"poison: {path}: not there yet, and can be written")


def test_a_whole_file_is_shown_with_the_number_of_its_rows(path: Path) -> None:
    path.write_bytes(WHOLE)
    assert found(path) == ("ok", f"poison: {path}: 2 rows")


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (WHOLE[:-1], "is damaged (its digest is another one)"),
        (b"nonsense", "is damaged (it does not begin as such a file does)"),
        (content_of("poison", [b"7"]), "is damaged (a row is a name and an object)"),
        (WHOLE.replace(b"file 1 ", b"file 2 ", 1), "is of version 2, and this rpcmq knows 1"),
        (content_of("other", ROWS), "is of the node other"),
        (b"x" * (40 << 20), "has 41943040 bytes; max_bytes = 16777216"),
    ],
    ids=["cut", "nonsense", "wrong-row", "later-version", "other-node", "too-large"],
)
def test_doctor_says_of_a_bad_file_what_the_router_says(path: Path, data: bytes, says: str) -> None:
    path.write_bytes(data)
    level, text = found(path)
    assert level == "fail" and says in text and str(path) in text
    notes: list[LogEvent] = []
    file = NodeFile(str(path), "poison", 16 << 20, notes.append)
    try:
        file.start(lambda: None)
        eventually(notes.copy, 30)
    finally:
        file.close(30)
    assert says in notes[0].text


def no_folder(path: Path) -> str:
    path.parent.rmdir()
    return f"there is no folder {path.parent}"


def directory_in_place_of_the_next_file(path: Path) -> str:
    Path(f"{path}.new").mkdir()
    return f"{path}.new is no regular file"


def link_in_place_of_the_lock(path: Path) -> str:
    Path(f"{path}.lock").symlink_to("elsewhere")
    return f"{path}.lock is no regular file"


@pytest.mark.parametrize("spoil", [no_folder, directory_in_place_of_the_next_file, link_in_place_of_the_lock])
def test_a_file_that_cannot_be_written_is_a_fault(path: Path, spoil: Callable[[Path], str]) -> None:
    why = spoil(path)
    assert found(path) == ("fail", f"poison: {path}: cannot be written: {why}")


@pytest.mark.parametrize("what", ["", ".lock", ".new"])
def test_what_this_user_may_not_write_is_a_fault(path: Path, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    denied = f"{path}{what}" if what else str(path.parent)
    if what:
        Path(denied).touch()
    real = os.access  # root may write anything
    monkeypatch.setattr(os, "access", lambda at, mode: str(at) != denied and real(at, mode))
    why = f"{denied} may not be written" if what else f"nothing may be written in {denied}"
    assert found(path) == ("fail", f"poison: {path}: cannot be written: {why}")


def test_a_running_router_that_cannot_write_the_file_is_a_warning(
    path: Path, invoke: Callable[..., SimpleNamespace]
) -> None:
    path.write_bytes(content_of("other", ROWS))
    config = config_for(path)
    with RouterProcess(file=str(config)) as router, Client(router.url) as client:
        (row,) = client.query("nodes", timeout=30)["nodes"]
        assert row["file_problem"] == f"{path}: is of the node other"
        env = {"RPCMQ_ROUTER": router.url}
        ended = invoke("doctor", "--config", str(config), "--json", "--timeout", "30", env=env)
        findings = [each for each in json.loads(ended.stdout)["findings"] if each["about"] == "node file"]
        assert ended.returncode == 1 and [each["level"] for each in findings] == ["fail", "warning"]
        assert all("is of the node other" in each["text"] for each in findings)
        assert "is of the node other" in " ".join(invoke("node", "ls", env=env | {"COLUMNS": "200"}).stdout.split())
