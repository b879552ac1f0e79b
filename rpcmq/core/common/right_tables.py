"""Rights as files and command lines have them."""

from __future__ import annotations

from collections.abc import Collection

from rpcmq.core.common.rights import ALL_VERBS, Right
from rpcmq.errors import ConfigError
from rpcmq.toml import quoted

__all__ = ["parse_right", "read_right", "read_texts", "right_as_toml", "shown_right"]

_MAX_WORDS = 32


def read_texts(path: str, key: str, value: object, empty: bool = False) -> tuple[str, ...]:
    """Return the list of texts ``value``, which ``key`` of the file ``path`` has.

    Args:
        empty: whether a text may be empty.

    Raises:
        ConfigError: it is none, or has no text.
    """
    if not isinstance(value, list) or not all(isinstance(item, str) and (item or empty) for item in value) or not value:
        raise ConfigError(f"{path}: {key} = {value!r}: expected a list of texts, at least one")
    return tuple(value)


def read_right(path: str, where: str, table: object, known: Collection[str]) -> Right:
    """Return the right in a ``table`` of TOML, which is called ``where`` in the file ``path``.

    Args:
        known: the verbs that it can have.

    Raises:
        ConfigError: something in it is missing, unknown or wrong.
    """
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: {where} = {table!r}: expected a table [[rights]]")
    for name in table:
        if name not in ("verbs", "topics", "exchanges"):
            raise ConfigError(f"{path}: {where}.{name}: unknown; known: verbs, topics, exchanges")
    for name in ("verbs", "topics"):
        if name not in table:
            raise ConfigError(f"{path}: {where}.{name} is missing")
    verbs = read_texts(path, f"{where}.verbs", table["verbs"])
    for verb in verbs:
        if verb not in known:
            raise ConfigError(f"{path}: {where}.verbs: {verb!r} is unknown; known: {', '.join(known)}")
    topics = read_texts(path, f"{where}.topics", table["topics"])
    for topic in topics:
        words = topic.split(".")
        if "" in words or len(words) > _MAX_WORDS:
            text = f"{topic!r} is no pattern: words between dots, at most {_MAX_WORDS}, none empty"
            raise ConfigError(f"{path}: {where}.topics: {text}")
    exchanges = read_texts(path, f"{where}.exchanges", table.get("exchanges", [""]), empty=True)
    return Right(frozenset(verbs), topics, exchanges)


def parse_right(text: str, known: Collection[str], every: Collection[str]) -> Right:
    """Return the right in ``VERBS:TOPICS`` or ``VERBS:EXCHANGES/TOPICS``, each a list with commas.

    Args:
        known: the verbs that it can have.
        every: those that the word ``all`` stands for.

    Raises:
        ValueError: it is none; the text says what is expected.
    """
    verbs, colon, where = text.partition(":")
    exchanges, slash, topics = where.rpartition("/")
    names = every if verbs == "all" else tuple(verbs.split(","))
    if not colon or not topics or set(names) - set(known):
        raise ValueError(
            f"expected VERBS:TOPICS as 'call,cast:compute.#', or VERBS:EXCHANGE/TOPICS; verbs: all, {', '.join(known)}"
        )
    patterns = tuple(topics.split(","))
    if any("" in pattern.split(".") for pattern in patterns):
        raise ValueError("a topic pattern is words between dots, none empty")
    return Right(frozenset(names), patterns, tuple(exchanges.split(",")) if slash else ("",))


def shown_right(right: Right, known: Collection[str], every: Collection[str] = ALL_VERBS) -> str:
    """Return ``right`` for readers: ``call,cast [glance] image.#``."""
    verbs = "all" if right.verbs >= frozenset(every) else ",".join(verb for verb in known if verb in right.verbs)
    exchanges = "" if right.exchanges == ("",) else f" [{','.join(right.exchanges)}]"
    return f"{verbs}{exchanges} {','.join(right.topics)}"


def right_as_toml(right: Right, known: Collection[str], table: str = "rights") -> list[str]:
    """Return the lines of ``right`` in a file, as the ``table`` [[rights]]."""
    verbs = [verb for verb in known if verb in right.verbs]
    lines = ["", f"[[{table}]]", f"verbs = {quoted(verbs)}", f"topics = {quoted(right.topics)}"]
    if right.exchanges != ("",):
        lines.append(f"exchanges = {quoted(right.exchanges)}")
    return lines
