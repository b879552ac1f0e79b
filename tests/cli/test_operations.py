"""The pages of ``docs/operations`` and the unit file say what the code does.

``python -m tests.cli.test_operations`` writes the generated parts of the pages anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from configparser import RawConfigParser
from pathlib import Path

import pytest
from click import Context

from rpcmq.cli.exit_codes import EXIT_CODES
from rpcmq.cli.router import router_command
from rpcmq.config import RouterConfig, describe_fields
from rpcmq.server.drain import LINGER
from tests.views import VIEWS

DOCS = Path(__file__).parents[2] / "docs"
PAGES = DOCS / "operations"
WATCHING = PAGES / "watching.md"


def settings() -> Iterator[str]:
    yield "| key | accepts | default | live | what |"
    yield "|---|---|---|---|---|"
    for info in describe_fields():
        default = f"`{info.default!r}`".replace("'", '"')
        yield f"| `{info.key}` | {info.kind.expected} | {default} | {'yes' if info.live else ''} | {info.help} |"


def exit_codes() -> Iterator[str]:
    yield "| code | meaning |"
    yield "|---|---|"
    for code, meaning in EXIT_CODES.items():
        yield f"| {int(code)} | {meaning} |"


#: Page -> the name of its generated part, and its lines.
GENERATED = {"settings.md": ("settings", settings), "commands.md": ("exit codes", exit_codes)}


def generated(page: str) -> str:
    """The text of ``page`` with its generated part as it should be."""
    name, lines = GENERATED[page]
    pattern = rf"(<!-- {name}: .*? -->\n).*?(<!-- end of {name} -->\n)"
    whole = "\\1" + "".join(line.replace("\\", "\\\\") + "\n" for line in lines()) + "\\2"
    text, count = re.subn(pattern, whole, (PAGES / page).read_text(), flags=re.DOTALL)
    assert count == 1
    return text


@pytest.mark.parametrize("page", GENERATED)
def test_generated_parts_are_up_to_date(page: str) -> None:
    assert (PAGES / page).read_text() == generated(page), "run: python -m tests.cli.test_operations"


def test_every_setting_has_its_flag() -> None:
    flags = {flag for parameter in router_command.params for flag in parameter.opts}
    assert flags == {"--config", *(info.flag for info in describe_fields() if info.flag)}


@pytest.mark.parametrize("view", sorted(set(VIEWS) - {"overview", "summary"}))
def test_every_view_is_documented(view: str) -> None:
    assert f"| `/{view}` |" in WATCHING.read_text()


def test_every_event_of_the_log_is_documented() -> None:
    server = DOCS.parent / "rpcmq" / "server"
    source = "".join(path.read_text() for path in server.glob("*.py"))
    events = set(re.findall(r'log_event\(\s*[\w.]+,\s*[\w.]+,\s*"([^"]+)"', source))
    events |= set(re.findall(r'"event": "([^"]+)"', source))
    documented = set(re.findall(r"^\| `([^`]+)` \| (?:info|warning|error)", WATCHING.read_text(), re.MULTILINE))
    assert len(events) > 8 and events <= documented


def test_the_unit_starts_a_router_and_gives_it_time_to_drain() -> None:
    unit = RawConfigParser(strict=True)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(DOCS / "rpcmq.service")
    service = unit["Service"]
    program, command, *flags = service["ExecStart"].split()
    assert program.endswith("/rpcmq") and command == "router"
    router_command.parse_args(Context(router_command), flags)
    assert service["Type"] == "notify"
    assert float(service["TimeoutStopSec"]) > RouterConfig().router.drain_seconds + LINGER
    assert int(service["LimitNOFILE"]) > RouterConfig().link.max_links


if __name__ == "__main__":
    for each in GENERATED:
        (PAGES / each).write_text(generated(each))
