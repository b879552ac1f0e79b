"""Checks a built site: ``python -m docs.site.check build/docs``.

Each link within the site leads to a file that is there and to an id in it; links out of it are well-formed URLs; and
a page loads nothing from elsewhere, so that it is complete without a network.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

__all__ = ["main", "problems"]

_LOADED = {"script", "img", "source", "iframe"}
_FROM_ELSEWHERE = re.compile(r"(?:url\(|@import)\s*['\"]?((?:https?:)?//[^'\")\s]+)")


def main(arguments: list[str]) -> int:
    """Print what is wrong with the site in the folder that is given; the exit code."""
    (folder,) = arguments
    found = list(problems(Path(folder)))
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


def problems(folder: Path) -> Iterator[str]:
    """Each problem of the site in ``folder``, a line each."""
    pages = {path: _read(path) for path in sorted(folder.rglob("*.html"))}
    if not pages:
        yield f"{folder}: no pages"
    for path, page in pages.items():
        name = path.relative_to(folder)
        for target in page.loaded:
            yield from (f"{name}: {problem}" for problem in _of_loaded(folder, path, target))
        for target in page.links:
            yield from (f"{name}: {problem}" for problem in _of_link(folder, path, target, pages))
    for style in sorted(folder.rglob("*.css")):
        for url in _FROM_ELSEWHERE.findall(style.read_text(encoding="utf-8")):
            yield f"{style.relative_to(folder)}: loads {url} from elsewhere"


@dataclass
class _Page(HTMLParser):
    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attributes}
        self.ids.update(values[name] for name in ("id", "name") if name in values)
        if tag in _LOADED and "src" in values:
            self.loaded.append(values["src"])
        elif tag == "link" and {"stylesheet", "icon", "preload"} & set(values.get("rel", "").split()):
            self.loaded.append(values["href"])
        elif tag in ("a", "link") and "href" in values:
            self.links.append(values["href"])


def _read(path: Path) -> _Page:
    page = _Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def _of_loaded(folder: Path, path: Path, target: str) -> Iterator[str]:
    parts = urlsplit(target)
    if parts.scheme == "data":
        return
    if parts.scheme or parts.netloc:
        yield f"loads {target} from elsewhere"
    elif not _inside(folder, path, parts.path).is_file():
        yield f"loads {target}, which is not there"


def _of_link(folder: Path, path: Path, target: str, pages: dict[Path, _Page]) -> Iterator[str]:
    parts = urlsplit(target)
    if parts.scheme == "mailto":
        return
    if parts.scheme or parts.netloc:
        if parts.scheme not in ("http", "https") or not parts.netloc or " " in target:
            yield f"links to {target!r}, which is no URL"
        return
    file = _inside(folder, path, parts.path) if parts.path else path
    if not file.is_file():
        yield f"links to {target}, which is not there"
    elif file in pages and parts.fragment and unquote(parts.fragment) not in pages[file].ids:
        yield f"links to {target}: no such place in that page"


def _inside(folder: Path, path: Path, target: str) -> Path:
    """The file that ``target`` means in the page ``path``; a link out of ``folder`` leads to no file."""
    file = (path.parent / unquote(target)).resolve()
    top = folder.resolve()
    return folder / file.relative_to(top) if file.is_relative_to(top) else folder / "outside the site"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
