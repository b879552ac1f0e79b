"""Values as they are given on the command line."""

from __future__ import annotations

import json
from typing import Any, NoReturn

import click

__all__ = ["json_object", "parse_value"]


def json_object(ctx: click.Context, parameter: click.Parameter, value: str | None) -> dict[str, Any] | None:
    """Parse an option that takes a JSON object."""
    if value is None:
        return None
    try:
        parsed = json.loads(value, parse_constant=_no_constant)
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is not JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise click.BadParameter(f'{value!r}: expected a JSON object like {{"name": 1}}')
    return parsed


def parse_value(text: str) -> Any:
    """Parse ``text`` as JSON; return it unchanged if it is not JSON."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except ValueError:
        return text


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON value")
