"""The page and its pictures: whole, safe, offline, of a size that opens."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from rpcmq.latency.analysis.account import Life, SetAside
from rpcmq.latency.analysis.finding import Finding
from rpcmq.latency.analysis.hedging import HedgedCalls
from rpcmq.latency.analysis.series import METHOD
from rpcmq.latency.report import METHODS_IN_DETAIL, Report, write_report
from tests.latency.report import reports

VOID = {"meta", "link", "br", "img", "input", "hr"}
PICTURES = ["percentiles.png", "heat-map.png", "outcomes.png", "stages.png"]


@dataclass
class Page(HTMLParser):
    """A page that was read: each element that was opened has to be closed, in order."""

    source: str
    open: list[str] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    attributes: list[tuple[str, str, str]] = field(default_factory=list)
    words: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(set(names)) == len(names), (tag, names)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        self.links += [value or "" for name, value in attrs if name in ("href", "src", "xlink:href", "action")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & set(self.open):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[list[Path], Page]]:
    """The files of a report of a size, made once, and the page as it reads."""
    made: dict[str, tuple[list[Path], Page]] = {}
    sizes: dict[str, Callable[[], Report]] = {
        "none": lambda: reports.report(0),
        "one": lambda: reports.report(1, 1, 1),
        "hedged": lambda: hedged_report(60),
        "little": lambda: reports.unbalanced(reports.report(180, 4, 12)),
        "much": lambda: reports.report(120_000, 2000, 1440, 10, servers=2),
    }

    def make(size: str) -> tuple[list[Path], Page]:
        if size not in made:
            files = write_report(sizes[size](), tmp_path_factory.mktemp(size) / "new")
            made[size] = files, Page(files[0].read_text("utf-8"))
        return made[size]

    return make


def hedged_report(methods: int) -> Report:
    of = reports.report(180, 4, 12)
    of.hedged = reports.hedged(methods)
    return of


@pytest.mark.parametrize("size", ["none", "one", "hedged", "little", "much"])
class TestAnySize:
    def test_is_well_formed_and_its_links_lead_somewhere(
        self, size: str, written: Callable[[str], tuple[list[Path], Page]]
    ) -> None:
        page = written(size)[1]
        assert len(set(page.ids)) == len(page.ids)
        inside = {link[1:] for link in page.links if link.startswith("#")}
        assert {"main", "account", "findings"} <= inside <= set(page.ids)

    def test_needs_nothing_but_itself(self, size: str, written: Callable[[str], tuple[list[Path], Page]]) -> None:
        page = written(size)[1]
        assert [link for link in page.links if not link.startswith(("#", "data:image/png;base64,"))] == []
        assert re.findall(r"@import|url\((?!#)", page.source) == []
        remote = [found for found in page.attributes if "://" in found[2] and not found[1].startswith("xmlns")]
        assert remote == []
        [policy] = [value for _, name, value in page.attributes if name == "content" and "default-src" in value]
        assert "default-src 'none'" in policy
        [script] = re.findall(r"<script>(.*?)</script>", page.source, re.DOTALL)
        assert base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() in policy

    def test_has_all_its_colours_for_light_and_dark(
        self, size: str, written: Callable[[str], tuple[list[Path], Page]]
    ) -> None:
        source = written(size)[1].source
        schemes = re.findall(r":root\{([^}]*)\}", source)
        assert len(schemes) == 2
        for scheme in schemes:
            assert set(re.findall(r"var\(--([a-z0-9_]+)\)", source)) <= set(re.findall(r"--([a-z0-9_]+):", scheme))
        assert re.findall(r'style="[^"]*#[0-9a-f]{6}', source) == []

    def test_pictures_show_something(self, size: str, written: Callable[[str], tuple[list[Path], Page]]) -> None:
        files = written(size)[0]
        assert [path.name for path in files] == ["report.html", *(PICTURES if size != "none" else [])]
        for path in files[1:]:
            pixels = imread(path)
            assert pixels.shape[1] == 2200
            coloured = np.ptp(pixels[:, :, :3], axis=2) > 0.1
            assert coloured.any()
            assert (pixels[:, :, :3].min(axis=2) > 0.99).mean() > 0.05

    def test_begins_with_the_account(self, size: str, written: Callable[[str], tuple[list[Path], Page]]) -> None:
        text = written(size)[1].text
        assert text.index("rows shipped") < text.index("Look at first", text.index("rows shipped"))
        assert ("OK: it balances" in text) == (size != "little")
        assert ("Does not balance" in text) == (size == "little")

    def test_opens_quickly(self, size: str, written: Callable[[str], tuple[list[Path], Page]]) -> None:
        assert len(written(size)[1].source) < 3_000_000


class TestContent:
    def test_errors_are_named_by_what_was_raised(self, tmp_path: Path) -> None:
        of = reports.report(300, 3, 5)
        of.whole.outcomes = {"ok": 200, "remote_error": 100}
        of.whole.errors_by_class = {("remote_error", f"Error<{n}>"): n for n in range(1, 9)}
        write_report(of, tmp_path)
        text = Page((tmp_path / "report.html").read_text()).text
        assert "8 Error<8> , 7 Error<7> , 6 Error<6> , 5 Error<5> , 4 Error<4>" in text

    def test_what_is_missing_is_not_green(self, tmp_path: Path) -> None:
        of = reports.report(300, 3, 5)
        of.account.waiting, of.account.unsealed = 4, [Life("r<1>", 1_700_000_000_000, 1_700_000_060.0, 3, 2100)] * 12
        write_report(of, tmp_path)
        html = (tmp_path / "report.html").read_text()
        assert 'class="account partial"' in html and "OK: it balances" not in html
        assert "spool files wait: run rpcmq ship" in html
        assert html.count("r&lt;1&gt;, started 2023-11-14 22:13:20, ended without a seal") == 10
        assert "up to 25,200 more records lost" in html

    def test_account_that_does_not_balance(self, written: Callable[[str], tuple[list[Path], Page]]) -> None:
        text = written("little")[1].text
        assert "6,813 rows shipped ≠ 180 counted + 6,200 set aside 433 records were shipped, but are neither" in text
        assert "219 numbers without a record; 0 may still end, 150 dropped by routers" in text
        assert "ready/stray.parquet foreign no segment of a dispatch log not known" in text

    def test_nothing(self, written: Callable[[str], tuple[list[Path], Page]]) -> None:
        text = written("none")[1].text
        assert "There are no records in this range." in text
        assert "Methods" not in text

    def test_n_too_small_instead_of_a_number(self, written: Callable[[str], tuple[list[Path], Page]]) -> None:
        text = written("one")[1].text
        assert "p50 n too small needs 5 records" in text
        assert "p99.9 n too small needs 2,995 records" in text
        assert "p50 n too small" not in written("little")[1].text
        assert "p99 n too small needs 299 records" in written("little")[1].text

    def test_names_three_things(self, written: Callable[[str], tuple[list[Path], Page]]) -> None:
        shown, rest = written("little")[1].text.split(" 1 more ")
        assert [shown.count(each.what) for each in reports.findings()] == [1, 1, 1, 0]
        assert reports.findings()[3].what in rest

    def test_says_what_was_left_out(self, written: Callable[[str], tuple[list[Path], Page]]) -> None:
        page = written("much")[1]
        assert f"{METHODS_IN_DETAIL} of 2,000 methods, those with the most total time" in page.text
        [table] = re.findall(r'<table id="methods-t".*?</table>', page.source, re.DOTALL)
        assert table.count('<th scope="row">') == METHODS_IN_DETAIL
        assert 'class="spark"' in table
        assert "Each point is of 5 min, in which windows were put together" in page.text

    def test_numbers_are_those_of_the_histograms(self, written: Callable[[str], tuple[list[Path], Page]]) -> None:
        of = reports.report(180, 4, 12)
        p50 = of.whole.total.quantile(0.5)
        assert p50 is not None
        assert f"p50 {p50 / 1000:.3g} ms" in written("little")[1].text
        assert f"Errors {of.whole.errors / 1.8:.2f} % {of.whole.errors} did not end well" in written("little")[1].text

    def test_traces_are_drawn(self, written: Callable[[str], tuple[list[Path], Page]]) -> None:
        page = written("little")[1]
        assert page.source.count('<details class="trace"') == 8
        assert page.source.count('<details class="trace" open>') == 3
        assert "router-b → node-001" in page.text


HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "\u202egnp.exe",
    "two\nlines\x1b[31m",
    "x" * 5000,
    "{{ 7 * 7 }}",
    "$\\alpha$ 名前 🙂",
    "",
)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Page:
    """The page of a report in which each name that comes from elsewhere is one of ``HOSTILE``."""
    of = reports.report(400, len(HOSTILE), 5)
    for each in [*of.methods, *of.method_windows, *of.servers, *of.callers, *of.routers]:
        number = int(re.sub(r"\D", "", each.key.get("method") or "") or 0) % len(HOSTILE)
        each.key = {name: HOSTILE[(number + place) % len(HOSTILE)] for place, name in enumerate(each.key)}
        each.outcomes[HOSTILE[0]] = 3
    of.whole.outcomes |= dict.fromkeys(HOSTILE, 2)
    of.windows[0].outcomes |= dict.fromkeys(HOSTILE, 2)
    of.log = HOSTILE[1]
    of.hedged = [HedgedCalls(dict.fromkeys(METHOD, text), calls=1) for text in HOSTILE]
    of.findings = [Finding(text, text, 0.5) for text in HOSTILE]
    of.account.set_aside = [SetAside(text, text, text, 1) for text in HOSTILE]
    of.seconds = dict.fromkeys(HOSTILE, 1.0)
    strings = ("router", "exchange", "topic", "method", "client", "server", "outcome")
    of.slowest = [reports.row(trace_id=text or None) | dict.fromkeys(strings, text) for text in HOSTILE]
    of.unknown = [reports.row(trace_id=text) | dict.fromkeys(strings, text) for text in HOSTILE]
    return Page(write_report(of, tmp_path_factory.mktemp("hostile"))[0].read_text("utf-8"))


def test_calls_that_several_servers_had_have_a_section(written: Callable[[str], tuple[list[Path], Page]]) -> None:
    page = written("hedged")[1]
    assert "#hedged" in page.links and "hedged" in page.ids
    assert "50 of 60 methods, those with the most extra requests" in page.text
    assert "90 90.0 %" in page.text and "1.06 s" in page.text
    for size in ("none", "one", "little"):
        assert "hedged" not in written(size)[1].ids and "#hedged" not in written(size)[1].links


def test_names_stay_text(hostile: Page) -> None:
    assert hostile.source.count("<script") == 1
    assert "<img" not in hostile.source
    assert [name for _, name, _ in hostile.attributes if name.startswith("on")] == []
    assert "<script>alert(1)</script>" in hostile.text
    assert "{{ 7 * 7 }}" in hostile.text


def test_names_show_what_is_invisible_and_have_an_end(hostile: Page) -> None:
    assert "\u202e" not in hostile.source
    assert "\x1b" not in hostile.source
    assert "\\u202egnp.exe" in hostile.text
    assert "two\\nlines\\x1b[31m" in hostile.text
    assert "x" * 900 not in hostile.source
    assert "名前 🙂" in hostile.text
