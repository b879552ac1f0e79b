"""Package the latency jobs for ``spark-submit``: rpcmq as a zip, and a script that starts them."""

from __future__ import annotations

import io
import zipfile
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path, PurePosixPath

from rpcmq.latency.files import write_whole

__all__ = ["NEEDS", "write_package"]

#: Python packages needed at the driver, beside Spark. Executors need none: nothing in the jobs runs Python.
NEEDS = (
    "click>=8.1.7",
    "jinja2>=3.1",
    "matplotlib>=3.9",
    "numpy>=2.0",
    "pyarrow>=18.0",
    "rich>=13.9",
    "scipy>=1.14",
    "tenacity>=9.0",
)

_SCRIPT = '''\
"""spark-submit --master MASTER --py-files rpcmq.zip rpcmq_latency.py report --log DIR --out DIR"""

import sys

from rpcmq.cli import main

main(["latency", *sys.argv[1:]])
'''
#: The same package is the same bytes.
_LONG_AGO = (1980, 1, 1, 0, 0, 0)


def write_package(out: Path) -> list[Path]:
    """Write ``rpcmq.zip``, ``rpcmq_latency.py`` and ``requirements.txt`` into the directory ``out``.

    Returns:
        their paths.

    Raises:
        OSError: they cannot be written.
    """
    out.mkdir(parents=True, exist_ok=True)
    contents = {
        "rpcmq.zip": _zipped(),
        "rpcmq_latency.py": _SCRIPT.encode(),
        "requirements.txt": "".join(f"{need}\n" for need in NEEDS).encode(),
    }
    for name, content in contents.items():
        write_whole(out / name, content)
    return [out / name for name in contents]


def _zipped() -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        _add(archive, files("rpcmq"), PurePosixPath("rpcmq"))
    return content.getvalue()


def _add(archive: zipfile.ZipFile, what: Traversable, path: PurePosixPath) -> None:
    if what.is_file():
        entry = zipfile.ZipInfo(str(path), _LONG_AGO)
        entry.compress_type = zipfile.ZIP_DEFLATED
        entry.external_attr = 0o644 << 16
        archive.writestr(entry, what.read_bytes())
        return
    for each in sorted(what.iterdir(), key=lambda each: each.name):
        if each.name != "__pycache__":
            _add(archive, each, path / each.name)
