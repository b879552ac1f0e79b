"""``python -m compat.nova run``: a legacy program or test suite on rpcmq, without an edit.

::

    python -m compat.nova run [--tree DIR | --no-tree] [--era NAME] -- COMMAND

where COMMAND is one of

* ``pytest ARGS``, also ``python -m pytest ARGS``: with the plugin ``compat.nova.plugin``;
* ``nosetests ARGS``: the same, names of tests as nose writes them (``nova.tests.test_rpc:RpcTest.test_call``);
* ``unittest ARGS``, also ``python -m unittest ARGS``;
* ``-m MODULE ARGS``, ``-c CODE ARGS``, ``SCRIPT ARGS``, each also with ``python`` (and its options) before it;
* the name of a command on the PATH that is a Python script, such as ``nova-compute ARGS``.

It runs in this interpreter, whatever ``python`` or ``#!`` names. The exit code is that of the command.
"""

from __future__ import annotations

import argparse
import inspect
import os
import re
import runpy
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import NamedTuple, NoReturn

import compat.nova

__all__ = ["main"]

_PLUGIN = "compat.nova.plugin"
_PYTHON = re.compile(r"python[\d.]*")
#: Options of the interpreter that take the next word as their value.
_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")
#: Commands that are modules.
_RUNNERS = {"pytest": "pytest", "py.test": "pytest", "unittest": "unittest", "unit2": "unittest"}
#: nose's options that pytest has under another name, or (None) has no need of.
_NOSE_OPTIONS = {
    "--nocapture": "-s",
    "--stop": "-x",
    "--nologcapture": None,
    "--no-path-adjustment": None,
    "--with-openstack": None,
    "--openstack-color": None,
}


class _Command(NamedTuple):
    """A "module", a "script" or "code", and its arguments."""

    kind: str
    what: str
    arguments: list[str]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; ends as it ends."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    parser = _parser()
    given = parser.parse_args(arguments)
    words: list[str] = given.command[1:] if given.command[:1] == ["--"] else given.command
    own = arguments[: len(arguments) - len(words)]
    if words and _PYTHON.fullmatch(os.path.basename(words[0])):
        options, words = _split(words[1:])
        if options:
            _restart([*options, "-m", "compat.nova", *own, *words])
    command = _parse_command(words)
    if command is None:
        parser.error(f"not a Python program: {' '.join(words)}" if words else "no command; it follows --")
    try:
        compat.nova.install(tree=given.tree, era=given.era)
    except ValueError as error:
        parser.error(str(error))
    try:
        _run(command)
    except SyntaxError as error:
        error.add_note(f"If {error.filename} is Python 2, convert it first: python3.11 -m lib2to3 -w -n FILES")
        raise


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m compat.nova", description="Legacy Nova services on rpcmq.")
    commands = parser.add_subparsers(required=True, metavar="run")
    run = commands.add_parser("run", help="run a program or a test suite under the shim")
    tree = run.add_mutually_exclusive_group()
    tree.add_argument("--tree", metavar="DIR", help="directory that holds the nova package (default: as on sys.path)")
    tree.add_argument(
        "--no-tree", dest="tree", action="store_const", const=False, help="stand in for nova even where one is there"
    )
    run.add_argument("--era", choices=compat.nova.ERAS, help="default: read off the tree or the imports")
    run.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="pytest, -m MODULE, SCRIPT, ...")
    return parser


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """Split off the interpreter's options; return them and the rest."""
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] not in ("-m", "-c", "-"):
        at += 2 if words[at] in _WITH_VALUE else 1
    return words[:at], words[at:]


def _restart(arguments: list[str]) -> NoReturn:
    """Become an interpreter that was started with these arguments."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *arguments])


def _parse_command(words: list[str]) -> _Command | None:
    """Parse ``words`` into a command; None if they are none."""
    if not words:
        return None
    first, *rest = words
    if first in ("-m", "-c"):
        return _Command("module" if first == "-m" else "code", rest[0], rest[1:]) if rest else None
    name = os.path.basename(first)
    if name == "nosetests":
        return _Command("module", "pytest", _from_nose(rest))
    if name in _RUNNERS:
        return _Command("module", _RUNNERS[name], rest)
    if os.path.exists(first):
        return _Command("script", first, rest)
    found = shutil.which(first)
    return _Command("script", found, rest) if found and _is_python(found) else None


def _is_python(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(2) == b"#!" and b"python" in file.read(1000)


def _from_nose(arguments: list[str]) -> list[str]:
    """Arguments of nose as pytest's: ``package.module:Class.method`` is ``package.module::Class::method``."""
    translated = ["--pyargs"]
    for word in arguments:
        if word.startswith("-"):
            option = _NOSE_OPTIONS.get(word, word)
            translated += [option] if option else []
        else:
            module, _, test = word.partition(":")
            translated.append("::".join([module, *filter(None, test.split("."))]))
    return translated


def _hide_runner_frames() -> None:
    """Make ``inspect.stack`` end with the program, as it did: services take their name from that file."""
    above = {__file__, runpy.run_path.__code__.co_filename}

    def stack(context: int = 1) -> list[inspect.FrameInfo]:
        frames = inspect.getouterframes(sys._getframe(1), context)
        while len(frames) > 1 and frames[-1].filename in above:
            frames.pop()
        return frames

    inspect.stack = stack


def _run(command: _Command) -> None:
    arguments = command.arguments
    _hide_runner_frames()
    if command.kind == "module":
        if command.what == "pytest":
            arguments = ["-p", _PLUGIN, *arguments]
        sys.argv[:] = [command.what, *arguments]
        runpy.run_module(command.what, run_name="__main__", alter_sys=True)
    elif command.kind == "script":
        sys.argv[:] = [command.what, *arguments]
        sys.path[0] = os.path.dirname(os.path.realpath(command.what))
        home = str(Path(compat.nova.__file__).parents[2])
        if home not in sys.path:
            # rpcmq was found in the current directory, a checkout that is not installed.
            sys.path.append(home)
        runpy.run_path(command.what, run_name="__main__")
    else:
        sys.argv[:] = ["-c", *arguments]
        main_module = sys.modules["__main__"] = ModuleType("__main__")
        exec(compile(command.what, "<string>", "exec"), vars(main_module))


if __name__ == "__main__":
    main()
