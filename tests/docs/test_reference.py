"""The reference has each public name, setting, command and exit code."""

from __future__ import annotations

import re
from importlib import import_module

import pytest

from docs.site import generated
from rpcmq.adapters.settings import fields_of
from rpcmq.cli.commands import COMMANDS
from rpcmq.cli.exit_codes import EXIT_CODES
from rpcmq.config import ClientConfig, describe_fields
from rpcmq.gateway.settings import GatewaySettings
from tests.docs.pages import DOCS

REFERENCE = DOCS / "reference"
TEXT = "\n".join(page.read_text() for page in sorted(REFERENCE.glob("*.md")))
#: Modules of which all members are shown.
WHOLE = set(re.findall(r"automodule:: (\S+)\n   :members:\n", TEXT))
SHOWN = set(re.findall(r"auto(?:class|function):: ([\w.]+)", TEXT)) | {
    f"{module}.{name}"
    for module, names in re.findall(r"automodule:: (\S+)\n   :members: (.+)\n", TEXT)
    for name in names.split(", ")
}
MODULES = [
    "rpcmq",
    "rpcmq.aio",
    "rpcmq.errors",
    "rpcmq.rpc",
    "rpcmq.testing",
    "rpcmq.testing.processes",
    "rpcmq.threads",
]


@pytest.mark.parametrize("module", MODULES)
def test_each_public_name_is_in_the_reference(module: str) -> None:
    if module in WHOLE:
        return
    names = set(import_module(module).__all__) - {"__version__", "aio", "rpc", "threads"}
    assert sorted(f"{module}.{name}" for name in names if f"{module}.{name}" not in SHOWN) == []


def test_the_settings_are_complete() -> None:
    for text, fields in [
        (generated.settings_of_a_router(), describe_fields()),
        (generated.settings_of_a_client(), describe_fields(ClientConfig())),
        (generated.settings_of_the_gateway(), list(fields_of(GatewaySettings(), False))),
    ]:
        assert re.findall(r"^`([\w.]+)`$", text, re.MULTILINE) == [info.key for info in fields]


def test_a_setting_says_all_that_is_known_of_it() -> None:
    text = generated.settings_of_a_router()
    about = text[text.index("`link.unresponsive_seconds`") : text.index("`link.lost_seconds`")]
    assert "seconds of silence after which a link gets no new work." in about
    assert "Default: `12.0`" in about and "**Live.**" in about
    assert "`--link-unresponsive-seconds`, `RPCMQ_LINK_UNRESPONSIVE_SECONDS`" in about


def test_each_command_is_there_with_its_help() -> None:
    text = generated.commands()
    assert set(COMMANDS) <= set(re.findall(r"^## rpcmq (\w+)$", text, re.MULTILINE))
    assert "## rpcmq keys add\n" in text and "--mandatory" in text
    # Without -h where another test has asked a command of its own for help: click keeps what that was.
    assert len(re.findall(r"--help +Show this message", text)) == text.count("## rpcmq")


def test_the_exit_codes_are_complete() -> None:
    assert re.findall(r"^\| (\d+) \|", generated.exit_codes(), re.MULTILINE) == [str(int(code)) for code in EXIT_CODES]


def test_the_pages_ask_for_what_is_generated() -> None:
    pages = "".join(path.read_text() for path in DOCS.rglob("*.md"))
    assert set(generated.GENERATED) == set(re.findall(r"<!-- here: ([a-z ]+) -->", pages))
