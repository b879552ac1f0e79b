"""Each command line of ``rpcmq`` in the documents is one: its command, its options and the values of choices exist.

Nothing is run: what the pages print is compared in ``test_guides.py``, for those that are run.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from rpcmq.cli.commands import group
from tests.docs.pages import DOCS, blocks_of

ROOT = DOCS.parent
PAGES = {str(page.relative_to(ROOT)): page for page in sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])}
#: Kinds of blocks in which a line may be a command.
_SHELLS = ("", "console", "text", "sh", "ini")
#: Something before ``rpcmq`` that leaves it a command: a prompt, variables, sudo, a path, or the command before.
_BEGIN = re.compile(
    r"(?:^|&& |\|\| |; |\| |: +)(?:\$ |ExecStart=)?(?:[A-Z_]+=\S* )*(?:sudo (?:-u \S+ )?)?(?:\S*/)?rpcmq (?=[a-z-])(.*)"
)
#: A value that stands for others, or one of which the page shows a part.
_PLACEHOLDER = re.compile(r"\.\.\.|[A-Z][A-Z0-9_-]*|\$.*|<.*>")

#: The beginning of what a signature is made of.
NO_COMMANDS = ("seal 1",)


def lines_of(page: Path) -> Iterator[str]:
    """The command lines in the blocks of a page, with the lines that continue them."""
    for block in blocks_of(page):
        if block.info in _SHELLS:
            for line in re.sub(r"\\\n\s*", "", block.text).splitlines():
                if found := _BEGIN.search(line):
                    yield found[1]


def mentions_of(page: Path) -> Iterator[str]:
    """The command lines between backticks in the prose of a page, which may leave out what does not matter there."""
    prose = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for quoted in re.findall(r"`([^`\n]+)`", prose):
        if found := _BEGIN.match(quoted):
            yield found[1]


def check(line: str, is_whole: bool = True) -> None:
    """Find the command of ``line``, and check what is given to it.

    Args:
        is_whole: no argument may be missing.

    Raises:
        click.ClickException: there is no such command, option or choice, or arguments are missing or left over.
    """
    words = _words_of(line)
    if not is_whole and words[-1].startswith("--"):
        words.append("VALUE")  # of an option, or one too many of a switch
    command: click.Command = group
    context = click.Context(group, info_name="rpcmq", allow_interspersed_args=False)
    while True:
        values, rest, _ = command.make_parser(context).parse_args(words)
        _check_choices(command, context, values)
        if not isinstance(command, click.Group):
            if is_whole:
                _check_arguments(command, values, rest)
            return
        if not rest or _PLACEHOLDER.fullmatch(rest[0]):
            return
        found = command.get_command(context, rest[0])
        if found is None:
            raise click.UsageError(f"{context.command_path}: no such command: {rest[0]}")
        command, words = found, rest[1:]
        context = click.Context(command, context, rest[0], allow_interspersed_args=not isinstance(command, click.Group))


def _words_of(line: str) -> list[str]:
    """The words of the command that ``line`` begins with, up to a comment or an operator of the shell."""
    lexer = shlex.shlex(re.sub(r"\s+# .*", "", line), posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    words = list(lexer)
    ends = (number for number, word in enumerate(words) if word and not word.strip("();<>|&"))
    return words[: next(ends, len(words))]


def _check_arguments(command: click.Command, values: dict[str, object], rest: list[str]) -> None:
    if rest and "..." not in rest:
        raise click.UsageError(f"{command.name}: too many arguments: {' '.join(rest)}")
    for each in command.params:
        value = values.get(each.name or "")
        is_given = isinstance(value, str) or (isinstance(value, tuple) and bool(value))
        if isinstance(each, click.Argument) and each.required and not is_given:
            raise click.UsageError(f"{command.name}: no {each.human_readable_name}")


def _check_choices(command: click.Command, context: click.Context, values: dict[str, object]) -> None:
    for parameter in command.params:
        value = values.get(parameter.name or "")
        if isinstance(parameter.type, click.Choice) and isinstance(value, str) and not _PLACEHOLDER.fullmatch(value):
            parameter.type.convert(value, parameter, context)


@pytest.mark.parametrize("name", PAGES)
def test_each_command_line_is_one(name: str) -> None:
    wrong = []
    lines = [(line, True) for line in lines_of(PAGES[name])]
    for line, is_whole in (*lines, *((line, False) for line in mentions_of(PAGES[name]) if line not in NO_COMMANDS)):
        try:
            check(line, is_whole)
        except (click.ClickException, ValueError) as error:
            wrong.append(f"{name}: rpcmq {line}: {getattr(error, 'message', error)}")
    assert wrong == []


def test_the_command_lines_are_found() -> None:
    found = {name: (len(list(lines_of(page))), len(list(mentions_of(page)))) for name, page in PAGES.items()}
    assert found["README.md"][0] >= 5 and sum(map(sum, found.values())) > 300, found


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("rooter", "no such command"),
        ("ls --veiw keys", "No such option"),
        ("keys ad NAME", "no such command"),
        ("latency report --engine dukdb", "is not one of"),
        ("keys add", "no NAME"),
        ("keys revoke one two", "too many arguments: two"),
    ],
)
def test_one_that_is_wrong_is_noticed(line: str, says: str) -> None:
    with pytest.raises(click.ClickException) as caught:
        check(line)
    assert says in caught.value.format_message()
