"""The documents: links lead somewhere, and what they name exists."""

from __future__ import annotations

import builtins
import re
import sys
from collections.abc import Iterator
from dataclasses import fields
from importlib import import_module
from pathlib import Path

import pytest
from gevent import subprocess

from rpcmq import errors
from rpcmq.adapters.settings import fields_of
from rpcmq.config import ClientConfig, describe_fields
from rpcmq.gateway.settings import GatewaySettings
from rpcmq.proxy.settings import ProxySettings, SiteSettings
from rpcmq.syslog.settings import SyslogSettings

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
NAMES = [str(path.relative_to(ROOT)) for path in DOCUMENTS]
DECISIONS = ROOT / "docs" / "decisions"
#: A word with one of them is a file.
ENDINGS = ("key", "md", "py", "secret", "toml")
#: The settings of the router, and of the programs that have a file of their own.
KEYS = {
    *(info.key for info in describe_fields()),
    *(info.key for settings in (GatewaySettings(), SyslogSettings()) for info in fields_of(settings, False)),
    *(f"sites.{info.key}" for info in fields_of(SiteSettings(), False)),
    *(
        f"{each.name}.{info.key}"
        for each in fields(ProxySettings)
        if each.name not in ("certificates", "sites")
        for info in fields_of(getattr(ProxySettings(), each.name), False)
    ),
}
#: Stand for any file, where the layout of the tree is explained.
PLACEHOLDERS = {"rpcmq/core/router/x.py", "tests/core/router/test_x.py"}
SECTIONS = {key.partition(".")[0] for key in KEYS}


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def prose_of(name: str) -> str:
    """The document without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", text_of(name), flags=re.MULTILINE | re.DOTALL)


def test_no_document_has_both_sides_of_a_merge() -> None:
    mark = re.compile(r"^(<<<<<<<|>>>>>>>) .*", re.MULTILINE)
    assert {name: found for name in NAMES if (found := mark.findall(text_of(name)))} == {}


def links_of(name: str) -> Iterator[str]:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose_of(name)):
        if not re.match(r"[a-z]+:", target):
            yield target


def anchors_of(path: Path) -> set[str]:
    """The anchors that a heading gets on the usual hosts."""
    headings = re.findall(r"^#+ (.+)$", prose_of(str(path.relative_to(ROOT))), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def quoted_in(name: str) -> set[str]:
    """The words between backticks."""
    return set(re.findall(r"`([^`\n]+)`", prose_of(name)))


def test_the_documents_are_there() -> None:
    assert {"docs/protocol.md", "docs/protocol/payloads.md", "docs/guarantees.md", "docs/glossary.md"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_no_mark_of_a_merge_conflict_is_left(name: str) -> None:
    assert not re.findall(r"^(?:<{7}|>{7}) .*$", text_of(name), re.MULTILINE)


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_to_files_and_headings(name: str) -> None:
    for target in links_of(name):
        file, _, anchor = target.partition("#")
        path = (ROOT / name).parent / file if file else ROOT / name
        assert path.exists(), f"{name} links to {target}"
        if anchor:
            assert anchor in anchors_of(path.resolve()), f"{name} links to {target}"


@pytest.mark.parametrize("name", NAMES)
def test_files_that_are_named_exist(name: str) -> None:
    for quoted in quoted_in(name) - PLACEHOLDERS:
        if re.fullmatch(r"(rpcmq|docs|tests|benchmarks|examples|requirements)/[\w./-]*", quoted):
            assert (ROOT / quoted).exists(), f"{name} names {quoted}"


#: Methods of every service, the exchanges and the key of work queues, and the subprotocol of the gateway.
NO_MODULES = (
    "rpcmq.1",
    "rpcmq.ping",
    "rpcmq.describe",
    "rpcmq.queue",
    "rpcmq.queue.admin",
    "rpcmq.queues",
    "rpcmq.work",
)


@pytest.mark.parametrize("name", NAMES)
def test_settings_that_are_named_exist(name: str) -> None:
    for quoted in quoted_in(name):
        section, dot, rest = quoted.partition(".")
        if dot and section in SECTIONS and re.fullmatch(r"[a-z_]+", rest) and rest not in ENDINGS:
            assert quoted in KEYS, f"{name} names the setting {quoted}"


@pytest.mark.parametrize("name", NAMES)
def test_python_names_that_are_given_exist(name: str) -> None:
    for quoted in quoted_in(name):
        if re.fullmatch(r"rpcmq(\.\w+)+", quoted) and quoted not in NO_MODULES:
            assert exists(quoted), f"{name} names {quoted}"


def exists(dotted: str) -> bool:
    """Return whether ``dotted`` is a module, or an attribute of an attribute of one."""
    words = dotted.split(".")
    for cut in range(len(words), 0, -1):
        try:
            found: object = import_module(".".join(words[:cut]))
        except ModuleNotFoundError:
            continue
        for word in words[cut:]:
            if not hasattr(found, word):
                return False
            found = getattr(found, word)
        return True
    return False


def test_a_name_that_does_not_exist_is_noticed() -> None:
    assert not exists("rpcmq.core.common.session.Session.nothing")
    assert not exists("rpcmq.nothing")


@pytest.mark.parametrize("name", NAMES)
def test_no_path_of_a_machine_is_named(name: str) -> None:
    assert not re.search(r"(?<![\w.:/])/(home|root|work|tmp)/", text_of(name))


def test_errors_named_in_the_guarantees_exist() -> None:
    named = {each for each in quoted_in("docs/guarantees.md") if re.fullmatch(r"([A-Z][a-z]+){2,}|Overloaded", each)}

    assert {"CallTimeout", "NoConsumer", "Overloaded", "LinkLost"} <= named
    assert named <= {*errors.__all__, "GreenletExit", *vars(builtins)}


def test_client_settings_named_in_the_guarantees_exist() -> None:
    keys = {info.key for info in describe_fields(ClientConfig())}

    assert {"cast_window", "reconnect_max_seconds"} <= quoted_in("docs/guarantees.md") & keys


def test_the_changelog_is_in_groups_of_short_entries() -> None:
    unreleased = text_of("CHANGELOG.md").split("\n## ")[1]
    added = unreleased.split("\n### Added\n")[1].split("\n### ")[0]
    assert [line for line in added.split("\n#### ")[0].splitlines() if line.startswith("- ")] == []
    entries = re.findall(r"^- .*(?:\n  .*)*", unreleased, re.MULTILINE)
    assert len(entries) > 40 and len(set(entries)) == len(entries)
    assert [entry for entry in entries if len(entry) > 600] == []


def test_the_benchmarks_can_be_listed_without_what_they_need() -> None:
    """The imports may not be installed: only `make bench` does that."""
    program = (
        "import runpy, sys\n"
        "sys.modules.update(dict.fromkeys(['psutil', 'duckdb', 'zerorpc', 'Pyro5', 'nats', 'pyarrow', 'numpy']))\n"
        "sys.argv = ['benchmarks', '--help']\n"
        "runpy.run_module('benchmarks', run_name='__main__')\n"
    )
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
    assert (ended.returncode, ended.stderr) == (0, "") and "whole-calls" in ended.stdout


def test_glossary_is_in_order_and_defines_each_word_once() -> None:
    words = re.findall(r"^\| ([a-z ]+) \|", text_of("docs/glossary.md"), re.MULTILINE)[1:]

    assert len(words) > 50
    assert words == sorted(words, key=str.lower)
    assert len(set(words)) == len(words)


def test_decisions_are_numbered_without_gaps_and_listed() -> None:
    files = sorted(path.name for path in DECISIONS.glob("[0-9]*.md"))

    assert [name[:4] for name in files] == [f"{n:04}" for n in range(1, len(files) + 1)]
    assert set(files) <= set(links_of("docs/decisions/README.md"))


@pytest.mark.parametrize("name", [name for name in NAMES if re.search(r"decisions/\d", name)])
def test_decisions_have_the_same_shape(name: str) -> None:
    text = text_of(name)
    number = Path(name).name[:4]

    assert text.startswith(f"# {number}: ")
    assert [part for part in ("**Situation.**", "**Decided.**", "**What follows.**") if part not in text] == []
