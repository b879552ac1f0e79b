"""The check of the built site finds what a reader would run into."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.site.check import main, problems


def site(folder: Path, body: str, head: str = "") -> Path:
    (folder / "guides").mkdir()
    (folder / "index.html").write_text(f"<html><head>{head}</head><body><h1 id='top'>x</h1>{body}</body></html>")
    (folder / "guides" / "one.html").write_text(
        "<html><body><h2 id='first'>1</h2><a href='../index.html#top'>up</a></body></html>"
    )
    return folder


GOOD = [
    '<a href="guides/one.html#first">1</a>',
    '<a href="#top">top</a>',
    '<a href="https://zeromq.org/a?b=c#d">ZeroMQ</a>',
    '<a href="mailto:someone@example.org">mail</a>',
    '<img src="data:image/png;base64,AA==">',
]
BAD = [
    ('<a href="guides/two.html">2</a>', "index.html: links to guides/two.html, which is not there"),
    ('<a href="guides/one.html#last">1</a>', "index.html: links to guides/one.html#last: no such place in that page"),
    ('<a href="#bottom">bottom</a>', "index.html: links to #bottom: no such place in that page"),
    ('<a href="../../secret.html">x</a>', "index.html: links to ../../secret.html, which is not there"),
    ('<a href="htps://zeromq.org">x</a>', "index.html: links to 'htps://zeromq.org', which is no URL"),
    ('<a href="https:zeromq.org">x</a>', "index.html: links to 'https:zeromq.org', which is no URL"),
    ('<script src="https://cdn.example/x.js"></script>', "index.html: loads https://cdn.example/x.js from elsewhere"),
    ('<img src="gone.png">', "index.html: loads gone.png, which is not there"),
]


@pytest.mark.parametrize("body", GOOD)
def test_a_site_without_dead_links_has_no_problems(body: str, tmp_path: Path) -> None:
    assert list(problems(site(tmp_path, body))) == []


@pytest.mark.parametrize(("body", "problem"), BAD)
def test_a_dead_link_is_named_with_its_page(body: str, problem: str, tmp_path: Path) -> None:
    assert list(problems(site(tmp_path, body))) == [problem]


def test_styles_and_fonts_from_elsewhere_are_named(tmp_path: Path) -> None:
    (site(tmp_path, "") / "s.css").write_text(
        "@import '//fonts.example/a.css'; p { background: url(https://a.example/b) }"
    )
    assert list(problems(tmp_path)) == [
        "s.css: loads //fonts.example/a.css from elsewhere",
        "s.css: loads https://a.example/b from elsewhere",
    ]


def test_an_empty_folder_is_no_site(tmp_path: Path) -> None:
    assert list(problems(tmp_path)) == [f"{tmp_path}: no pages"]


def test_the_exit_code_tells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(site(tmp_path, ""))]) == 0
    (tmp_path / "index.html").write_text("<a href='gone.html'>")
    assert main([str(tmp_path)]) == 1
    assert "index.html: links to gone.html" in capsys.readouterr().err
