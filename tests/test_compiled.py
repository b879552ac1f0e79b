"""The compiled wheel: its modules are compiled, and what builds it says what is missing."""

from __future__ import annotations

import ast
import os
import sys
from functools import partial
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

import rpcmq
from rpcmq.core.common import session
from rpcmq.core.router.settings import Settings
from rpcmq.drill.watched import Watch, WatchedRouter
from rpcmq.testing.network import Network
from rpcmq.testing.processes import Program, RouterProcess
from rpcmq.transport import handoff
from tests.compiled import COMPILED

ROOT = Path(__file__).parents[1]
SHOW_ENGINE = "from rpcmq.core.common import session; print('engine', session.__file__)"


@pytest.fixture(scope="module")
def hook() -> Any:
    spec = spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_all_modules_that_are_to_be_compiled_are_so_or_none(hook: Any) -> None:
    names = hook.sources(ROOT)
    assert {"rpcmq/core/common/session.py", "rpcmq/wire/header.py", "rpcmq/payload/pickle_scan.py"} <= set(names)
    suffixes = {Path(import_module(name.removesuffix(".py").replace("/", ".")).__file__ or "").suffix for name in names}
    assert suffixes == ({".so"} if COMPILED else {".py"})
    assert (handoff.HandoffLock is not None) is COMPILED


def test_classes_that_are_compiled_set_one_name_in_each_assignment(hook: Any) -> None:
    """``a = b = 0`` in the body of a class is refused by mypyc, minutes into the build of a wheel."""
    at_fault = [
        f"{name}:{statement.lineno}"
        for name in hook.sources(ROOT)
        for node in ast.walk(ast.parse((ROOT / name).read_bytes()))
        if isinstance(node, ast.ClassDef)
        for statement in node.body
        if isinstance(statement, ast.Assign)
        and (len(statement.targets) > 1 or isinstance(statement.targets[0], ast.Tuple))
    ]
    assert at_fault == []


def test_what_is_tested_is_the_installed_wheel_where_that_is_wanted() -> None:
    wanted = os.environ.get("TESTED_WHEEL")
    assert (Path(rpcmq.__file__).parent.parent == Path(wanted) and COMPILED) if wanted else True


def test_programs_that_tests_start_load_the_modules_that_this_process_has(tmp_path: Path) -> None:
    """A folder that goes before the wheel, as the one in which a program begins, would hide it from them."""
    (tmp_path / "script.py").write_text(SHOW_ENGINE)
    for command in (("-c", SHOW_ENGINE), (str(tmp_path / "script.py"),)):
        with Program([sys.executable, *command], {}, name="child") as child:
            assert child.expect("engine (.*)")[1] == session.__file__, command


@pytest.mark.skipif(not COMPILED or not sys.platform.startswith("linux"), reason="shows libraries, as Linux lists them")
def test_a_router_daemon_of_a_test_is_the_compiled_one() -> None:
    with RouterProcess() as router:
        assert f" {session.__file__}\n" in Path(f"/proc/{router.pid}/maps").read_text()


def test_a_drill_can_watch_the_router() -> None:
    watch = Mock(spec=Watch)
    network = Network(Settings(recovery_seconds=0.0), engine=partial(WatchedRouter, watch))
    api, node = network.process("api"), network.process("node")
    node.register("compute")
    api.request("compute", "boot", payload=b"a")
    told = [name for name, *_ in watch.method_calls]
    assert told[-2:] == ["accepted", "dispatched"]


def test_a_missing_compiler_is_named_with_what_to_do(
    hook: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(SystemExit, match=r"needs a C compiler, and no-such-compiler is not there: install one"):
        hook.compile_modules(ROOT, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_compiled_unless_asked_for(hook: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COMPILED_WHEEL", raising=False)
    build_data: dict[str, Any] = {"force_include": {}}
    made = hook.CustomBuildHook(str(ROOT), {}, None, None, str(tmp_path), "wheel")
    made.initialize("standard", build_data)
    monkeypatch.setenv("COMPILED_WHEEL", "1")
    made.initialize("editable", build_data)
    assert build_data == {"force_include": {}}
