"""Configuration files of legacy services: unlike in ``configparser``'s, a name may have several values."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence

from compat.nova.config_options import ConfigDirNotFoundError, ConfigFileParseError


def parse_config(lines: Sequence[str], path: str) -> dict[str, dict[str, list[str]]]:
    """Sections of names of values, each value in the order of the file.

    ``[section]``; ``name = value`` or ``name: value``, a value goes on in lines that start with a space; ``#`` and
    ``;`` start a comment. A file whose first line starts with ``--`` is a flag file: one ``--name=value`` a line.

    Raises:
        ConfigFileParseError: a line is none of these.
    """
    first = next((line.strip() for line in lines if line.strip() and line.strip()[0] not in "#;"), "")
    if first.startswith("--"):
        return {"DEFAULT": _parse_flagfile(lines)}
    sections: dict[str, dict[str, list[str]]] = {}
    section: dict[str, list[str]] | None = None
    last: list[str] | None = None
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text[0] in "#;":
            last = None if not text else last
        elif line[0].isspace() and last is not None:
            last[-1] = f"{last[-1]}\n{text}"
        elif text.startswith("["):
            if not text.endswith("]") or len(text) == 2:
                raise ConfigFileParseError(path, f"at {path}:{number}, invalid section: {line!r}")
            section, last = sections.setdefault(text[1:-1].strip(), {}), None
        elif section is None:
            raise ConfigFileParseError(path, f"at {path}:{number}, no section before: {line!r}")
        else:
            mark = min((text.find(each) for each in "=:" if each in text), default=0)
            if mark < 1:
                raise ConfigFileParseError(path, f"at {path}:{number}, no ':' or '=' found: {line!r}")
            last = section.setdefault(text[:mark].strip(), [])
            last.append(_unquoted(text[mark + 1 :].strip()))
    return sections


def _parse_flagfile(lines: Iterable[str]) -> dict[str, list[str]]:
    values: dict[str, list[str]] = {}
    for line in lines:
        name, equals, value = line.strip().partition("=")
        if not name.startswith("--"):
            continue
        name = name[2:].replace("-", "_")
        if not equals:
            name, value = (name[2:], "false") if name.startswith("no") else (name, "true")
        values.setdefault(name, []).append(value)
    return values


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text


def files_of(directory: str | None) -> list[str]:
    """Configuration files of a directory, in the order of their names; none of no directory.

    Raises:
        ConfigDirNotFoundError: it is not there.
    """
    if directory is None:
        return []
    directory = os.path.expanduser(directory)
    if not os.path.isdir(directory):
        raise ConfigDirNotFoundError(directory)
    return sorted(os.path.join(directory, name) for name in os.listdir(directory) if name.endswith(".conf"))


def config_dirs(project: str | None = None) -> list[str]:
    """The usual directories, those of the project first."""
    places = ["~", "/etc"]
    return [os.path.expanduser(p) for p in ([f"~/.{project}", "~", f"/etc/{project}", "/etc"] if project else places)]


def find_config_files(project: str | None = None, prog: str | None = None, extension: str = ".conf") -> list[str]:
    """The project's and the program's config file, each from the first of the usual directories that has it."""
    prog = os.path.basename(sys.argv[0]) if prog is None else prog
    prog = prog.removesuffix(".py")
    found = []
    for name in (project, prog):
        paths = [os.path.join(place, f"{name}{extension}") for place in config_dirs(project) if name]
        found += [path for path in paths if os.path.exists(path)][:1]
    return found
