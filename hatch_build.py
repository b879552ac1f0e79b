"""Builds the compiled wheel where COMPILED_WHEEL=1 says so (``make wheel``); else hatchling makes the pure one.

mypyc turns the modules of ``COMPILED`` into extension modules that lie beside their sources in the wheel and go before
them; those of ``IN_C`` have no source in Python. The rest stays interpreted, and nothing depends on which of both a
module is.
"""

from __future__ import annotations

import os
import shutil
import sysconfig
from contextlib import chdir
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

#: Patterns of the modules to compile: the engines, the wire, the scan of pickles, and of client and sockets those that
#: each call goes through. Not ``client/sender.py`` and what is before it: it takes what applications give, and says
#: itself which argument is wrong; compiled code would say that a str is expected. Not ``client/consumer.py``, which
#: gained nothing, nor ``payload/codec.py``, a dataclass with slots, of which applications may have subclasses.
COMPILED = (
    "rpcmq/core/**/*.py",
    "rpcmq/wire/*.py",
    "rpcmq/payload/pickle_scan.py",
    "rpcmq/payload/pickle_tuples.py",
    "rpcmq/client/arguments.py",
    "rpcmq/client/payloads.py",
    "rpcmq/client/process.py",
    "rpcmq/client/results.py",
    "rpcmq/client/task_answers.py",
    "rpcmq/client/task_starts.py",
    "rpcmq/client/thread_process.py",
    "rpcmq/client/trusted_payloads.py",
    "rpcmq/transport/batches.py",
    "rpcmq/transport/link_sender.py",
    "rpcmq/transport/wake_loop.py",
)
#: Those among them that stay interpreted, and why.
INTERPRETED = {
    "rpcmq/wire/detached.py": "a subclass of bytes",
    "rpcmq/core/common/illegal_events.py": "a subclass of a built-in exception",
    "rpcmq/wire/address.py": "says itself which argument of a caller is wrong",
    "rpcmq/wire/bodies.py": "dataclasses with class variables, and their fields are looked at; not on the hot path",
    "rpcmq/wire/mesh_bodies.py": "as above",
    "rpcmq/wire/query_bodies.py": "as above",
    "rpcmq/wire/body_fields.py": "as above",
    "rpcmq/wire/json_body.py": "as above",
    "rpcmq/core/router/settings.py": "a dataclass that is replaced at run time",
    "rpcmq/core/router/usage.py": "a property in place of its base class's attribute",
    "rpcmq/core/router/kind_table.py": "takes handlers of any key",
    "rpcmq/core/router/router.py": "has subclasses in drills and tests",
    "rpcmq/core/queue/policy.py": "checks the types of its own fields",
    "rpcmq/core/router/node_type.py": "has subclasses in tests, and defaults in its class",
    "rpcmq/core/router/roundrobin/node.py": "as above",
    "rpcmq/core/router/pubsub/node.py": "as above",
    "rpcmq/core/router/peer2peer/node.py": "as above",
}
#: Modules that are written in C, because they let go of the interpreter's lock. Without them Python's own locks do.
IN_C = ("rpcmq/transport/_handoff.c",)


class CustomBuildHook(BuildHookInterface[Any]):
    """Adds the extension modules to the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, unless this is a pure or an editable build."""
        if os.environ.get("COMPILED_WHEEL") != "1" or version == "editable":
            return
        root = Path(self.root)
        self._folder = Path(mkdtemp(prefix="rpcmq-wheel-"))
        built = compile_modules(root, self._folder)
        build_data["force_include"].update({str(file): str(file.relative_to(self._folder)) for file in built})
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was built beside the wheel."""
        folder = getattr(self, "_folder", None)
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def sources(root: Path) -> list[str]:
    """The modules that are compiled, relative to ``root``."""
    found = {path.relative_to(root).as_posix() for pattern in COMPILED for path in root.glob(pattern)}
    if unknown := INTERPRETED.keys() - found:
        raise SystemExit(f"hatch_build.py: INTERPRETED names what is not there: {', '.join(sorted(unknown))}")
    return sorted(name for name in found - INTERPRETED.keys() if not name.endswith("/__init__.py"))


def compile_modules(root: Path, folder: Path) -> list[Path]:
    """Compile :func:`sources` in ``folder``; return the extension modules, which lie there as in the package.

    Raises:
        SystemExit: a package or the C compiler is missing; says which.
    """
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        raise SystemExit(
            f"the compiled wheel needs a C compiler, and {compiler} is not there: install one "
            "(Debian: gcc, python3-dev) or build the pure wheel (make build), which needs none"
        )
    try:
        from mypyc.build import mypycify
        from setuptools import Distribution, Extension  # type: ignore[import-untyped]
        from setuptools.command.build_ext import build_ext  # type: ignore[import-untyped]
    except ImportError as error:
        raise SystemExit(f"the compiled wheel needs mypy and setuptools (make setup installs them): {error}") from None
    _keep_slices()
    shutil.copytree(root / "rpcmq", folder / "rpcmq", ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    shutil.copy(root / "pyproject.toml", folder)
    with chdir(folder):
        extensions = mypycify(
            ["--config-file=pyproject.toml", "--no-warn-unused-ignores", *sources(folder)],
            opt_level=os.environ.get("COMPILED_WHEEL_LEVEL", "2"),
            group_name="rpcmq",
        )
        extensions += [Extension(name.removesuffix(".c").replace("/", "."), [name]) for name in IN_C]
        command = build_ext(Distribution({"name": "rpcmq", "packages": [], "ext_modules": extensions}))
        command.inplace = True
        command.ensure_finalized()
        command.run()
    shutil.rmtree(folder / "build")
    return sorted(folder.rglob("*.so"))


def _keep_slices() -> None:
    """Keep mypyc 2.4 from taking ``message[KEY]``, where KEY is a slice, for an index of bytes."""
    from mypyc.ir.rtypes import bytes_rprimitive, is_fixed_width_rtype, is_int_rprimitive
    from mypyc.irbuild.specialize import dunder_specializers

    def guarded(specialize: Any) -> Any:
        def translate(builder: Any, base: Any, args: Any, context: Any) -> Any:
            index = builder.node_type(args[0])
            numeric = is_int_rprimitive(index) or is_fixed_width_rtype(index)
            return specialize(builder, base, args, context) if numeric else None

        return translate

    specializers = dunder_specializers.get(("__getitem__", bytes_rprimitive), [])
    specializers[:] = map(guarded, specializers)
