"""Each sentence of docs/guarantees.md is held by tests that exist: ``tests/guarantees.toml`` says which.

A sentence that promises something new, or is worded anew, fails here until a phrase of it stands in that file beside
the tests that would fail if it were untrue.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

from rpcmq import Service
from rpcmq.client import base_service, peer
from rpcmq.config import ClientConfig, RouterConfig, describe_fields
from rpcmq.core.common import session as link
from rpcmq.core.common.drops import DropNotices
from rpcmq.core.process import calls, casts, recent_messages
from rpcmq.core.router.roundrobin import acknowledgements as receipts
from rpcmq.core.router.roundrobin import departures
from rpcmq.core.router.settings import Settings
from rpcmq.server.settings import settings_for

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
#: Heading -> phrase of a sentence -> the tests that hold it; or why none can.
TABLE: dict[str, dict[str, list[str] | str]] = tomllib.loads(
    (ROOT / "tests" / "guarantees.toml").read_text(encoding="utf-8")
)
#: These say how the promises are checked, and with which figures; the figures are printed by the tests that they name.
NO_PROMISES = {"How this is tested", "Measured"}
#: Characters of a cell that stands for itself.
_LONG = 60
_END_OF_SENTENCE = re.compile(r"""(?<=[.?!])[*)"]*\s+(?=[*`"(\[]*[A-Z`])""")


def sentences(page: str) -> Iterator[tuple[str, str]]:
    """Heading and text of each sentence, bullet and row of a table of ``page``."""
    heading, lines = "", list[str]()
    for line in [*page.splitlines(), ""]:
        begins_anew = not line.strip() or line.startswith(("#", "|", "* "))
        if begins_anew and lines:
            for sentence in _END_OF_SENTENCE.split(" ".join(lines)):
                yield heading, sentence
            lines.clear()
        if line.startswith("## "):
            heading = line[3:]
        elif line.startswith("|"):
            yield heading, line
        elif line.strip() and not line.startswith("#"):
            lines.append(line.strip())


def is_frame(row: str) -> bool:
    """Return whether ``row`` is the head of a table, or the line below it."""
    return row.startswith("|") and (set(row) <= set("|-") or f"{row}\n|--" in PAGE)


def promises(text: str) -> Iterator[str]:
    """``text``, a sentence; of a row of a table, its long cells one by one, and then what is left of it."""
    if not text.startswith("|"):
        yield text
        return
    first, *cells = text.strip("| ").split(" | ")
    yield from (cell for cell in cells if len(cell) > _LONG)
    yield "| " + " | ".join([first, *(cell for cell in cells if len(cell) <= _LONG)]) + " |"


#: Without the frames of tables.
SENTENCES = [
    (heading, promise)
    for heading, text in sentences(PAGE)
    if heading not in NO_PROMISES and not is_frame(text)
    for promise in promises(text)
]
PHRASES = [(heading, phrase) for heading, phrases in TABLE.items() for phrase in phrases]


@cache
def functions_in(path: str) -> frozenset[str]:
    """The names of the test functions in the file ``path``."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    return frozenset(function.name for function in functions)


def test_a_page_is_read_sentence_by_sentence() -> None:
    page = (
        "Before. *All* is\nsaid.\n\n## One\n\n**A call (`x`) ends:** `y` says so.** It is 0.5 s.\n"
        "\n* one\n  more\n* two\n\n| a |\n|---|\n| b. C |\n"
    )
    assert list(sentences(page)) == [
        ("", "Before."),
        ("", "*All* is said."),
        ("One", "**A call (`x`) ends:** `y` says so."),
        ("One", "It is 0.5 s."),
        ("One", "* one more"),
        ("One", "* two"),
        ("One", "| a |"),
        ("One", "|---|"),
        ("One", "| b. C |"),
    ]


def test_long_cells_stand_for_themselves() -> None:
    assert list(promises("| a | " + "b" * 61 + " | c |")) == ["b" * 61, "| a | c |"]
    assert list(promises("a | b")) == ["a | b"]


def test_each_sentence_is_held_by_a_test() -> None:
    held = [(heading or "Introduction", phrase) for heading, phrase in PHRASES]
    missing = [
        f"{heading or 'Introduction'}: {text}"
        for heading, text in SENTENCES
        if not any(where == (heading or "Introduction") and phrase in text for where, phrase in held)
    ]
    assert not missing, "no phrase of these is in tests/guarantees.toml:\n" + "\n".join(missing)


@pytest.mark.parametrize("heading", TABLE)
def test_phrases_stand_in_the_page_once(heading: str) -> None:
    texts = [text for where, text in SENTENCES if (where or "Introduction") == heading]
    wrong = {phrase: found for phrase in TABLE[heading] if (found := sum(phrase in text for text in texts)) != 1}
    assert not wrong, "in how many sentences below this heading the phrase stands"


def test_tests_that_are_named_exist() -> None:
    for phrases in TABLE.values():
        for phrase, tests in phrases.items():
            assert tests, phrase
            for name in tests if isinstance(tests, list) else []:
                path, _, function = name.partition("::")
                assert (ROOT / path).is_file(), f"{phrase!r} names {path}"
                assert function in functions_in(path), f"{phrase!r} names {name}"


# --- numbers ------------------------------------------------------------------------------------

_UNITS = {"": 1, "casts": 1, "s": 1, "min": 60, "MiB": 2**20}
_NUMBER = r"([\d,.]*\d)(?: (s|min|MiB|casts))?"
_KEY = r"`((?:[a-z_]+\.)?[a-z_]+)`"
#: Some have two: 16 MiB (`cast_kept_bytes`); `link.lost_seconds` (60 s); `link.lost_seconds`, 60 s.
_STATED = re.compile(rf"{_NUMBER} \({_KEY}\)|{_KEY}(?: \(|, )(?:at most )?{_NUMBER}\b")


def test_numbers_beside_a_setting_are_its_default() -> None:
    defaults = {info.key: info.default for info in [*describe_fields(), *describe_fields(ClientConfig())]}
    stated = []
    for before, unit, key, other_key, after, other_unit in _STATED.findall(" ".join(PAGE.split())):
        number, unit, key = before or after, unit or other_unit, key or other_key
        if key not in defaults:
            continue  # `concurrency` (64), an argument
        stated.append(key)
        assert float(number.replace(",", "")) * _UNITS[unit] == defaults[key], key
    assert len(stated) >= 20 and {"cast_window", "cast_kept_bytes", "mailbox.max_seconds"} <= set(stated)


def test_numbers_without_a_setting_are_those_of_the_engines() -> None:
    defaults = {info.key: info.default for info in [*describe_fields(), *describe_fields(ClientConfig())]}
    service = signature(Service).parameters
    messages, size = defaults["link.outbox_max_messages"], defaults["link.outbox_max_bytes"] >> 20
    window = f"once {defaults['cast_window']:,} or {defaults['cast_window_bytes'] >> 20} MiB wait"
    phrases = [
        f"says so within {receipts._SECONDS:g} s",
        f"every {link.ACK_MESSAGES} messages, and with each heartbeat ({defaults['link.heartbeat_seconds']:g} s)",
        f"at most {link.ACK_MESSAGES - 1} or what came since the last heartbeat",
        f"has had {recent_messages._MAX_MESSAGES:,} other casts since",
        f"unless they had {recent_messages._MAX_MESSAGES:,} others since",
        f"`concurrency` ({base_service._GREENLETS} in gevent, {base_service._THREADS} in plain threads)",
        f"within its bound ({service['drain_seconds'].default:g} s)",
        f"if more than {casts._RETRY_CAST:g} s pass between the first refusal",
        f"({messages:,} messages or {size} MiB wait, or were sent",
        f"the next try is after {peer._RETRY_AFTER:g} s",
        window,
    ]
    text = " ".join(PAGE.split())
    assert [phrase for phrase in phrases if phrase not in text] == []
    assert (departures.MAX_ATTEMPTS, calls._GRACE, casts._ASK_EVERY) == (5, 0.5, 0.25), (
        "five, half a second, four times"
    )
    assert (DropNotices.GATHER, defaults["linger_seconds"]) == (1.0, 1.0), "a second"


def test_engines_have_the_same_defaults_as_the_settings() -> None:
    """Tests of the engines wait for what the page states."""
    of_machine: dict[str, Any] = {"router_name": "", "router_max_bytes": 0, "mesh_id": 0}
    assert replace(settings_for(RouterConfig()), **of_machine) == replace(Settings(), **of_machine)


def test_time_outs_are_measured_with_monotonic_clocks() -> None:
    """The wall clock is read for what is shown, for keys and files that expire and for signatures, and nowhere else."""
    reading = {
        str(path.relative_to(ROOT))
        for folder in ("core", "transport", "client", "server")
        for path in (ROOT / "rpcmq" / folder).glob("*.py")
        if re.search(r"(?<![\w.])(?:time\.)?time(?:_ns)?\(\)|datetime\.now|^from time import .*\btime\b",
                     path.read_text(encoding="utf-8"), re.MULTILINE)
    }  # fmt: skip
    shown = {"rpcmq/client/event_verbs.py", "rpcmq/server/spool.py", "rpcmq/server/embedded.py"}
    keys = {"rpcmq/server/key_authenticator.py", "rpcmq/server/authorized_keys.py", "rpcmq/server/latency_policy.py"}
    assert reading <= shown | keys | {"rpcmq/client/payloads.py"}
