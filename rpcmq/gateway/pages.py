"""Files that the gateway serves over HTTP: its clients in JavaScript, and those of a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.resources import files
from mimetypes import guess_type
from pathlib import Path
from urllib.parse import unquote

from rpcmq.errors import ConfigError

__all__ = ["CLIENT_FILES", "Page", "Pages", "client_file"]

CLIENT_FILES = ("rpcmq.js", "rpcmq-node.js")
"""The client, and what it needs in a Node without WebSockets of its own."""

_CHUNK_BYTES = 64 * 1024
_JAVASCRIPT = "text/javascript; charset=utf-8"


def client_file(name: str) -> bytes:
    """Return one of :data:`CLIENT_FILES`."""
    return files("rpcmq.gateway").joinpath("static", name).read_bytes()


class Page:
    """A file to be sent: its type, its size, and its bytes piece by piece."""

    def __init__(self, content_type: str, source: Path | bytes) -> None:
        self.content_type = content_type
        self._source = source
        self.size = len(source) if isinstance(source, bytes) else source.stat().st_size

    def chunks(self) -> Iterator[bytes]:
        """The bytes of the file, as many as ``size``."""
        if isinstance(self._source, bytes):
            yield self._source
            return
        left = self.size
        with self._source.open("rb") as file:
            while left and (data := file.read(min(left, _CHUNK_BYTES))):
                left -= len(data)
                yield data


class Pages:
    """The files of ``folder``; with "" only the clients.

    Raises:
        ConfigError: there is no such folder.
    """

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder).resolve() if folder else None
        if self._folder is not None and not self._folder.is_dir():
            raise ConfigError(f"pages.folder = {folder!r}: there is no such folder")

    def find(self, path: str) -> Page | None:
        """Return the file for the ``path`` of a request; None: there is none.

        Those of the folder go before the clients. Nothing outside of it is served, nor what begins with a dot.
        """
        name = unquote(path).lstrip("/")
        found = self._in_folder(name)
        if found is not None:
            content_type = guess_type(found.name)[0] or "application/octet-stream"
            if found.suffix in (".js", ".mjs"):
                content_type = _JAVASCRIPT
            elif content_type.startswith("text/"):
                content_type += "; charset=utf-8"
            return Page(content_type, found)
        return Page(_JAVASCRIPT, client_file(name)) if name in CLIENT_FILES else None

    def _in_folder(self, name: str) -> Path | None:
        if self._folder is None or "\0" in name or any(part.startswith(".") for part in name.split("/")):
            return None
        try:
            found = (self._folder / name).resolve()
            if found.is_dir():
                found = (found / "index.html").resolve()
            if found.is_relative_to(self._folder) and found.is_file() and os.access(found, os.R_OK):
                return found
        except OSError:
            return None  # a name that is too long, a loop of links
        return None
