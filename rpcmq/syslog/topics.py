"""The topic of the event that a message becomes."""

from __future__ import annotations

import re

from rpcmq.core.common.topic_patterns import MAX_TOPIC_BYTES, MAX_TOPIC_WORDS
from rpcmq.syslog.messages import SyslogMessage

__all__ = ["TOPIC_FIELDS", "is_topic_template", "topic_of"]

TOPIC_FIELDS = ("facility", "severity", "host", "app", "process_id", "message_id")
"""The fields of a message that a topic may have."""

_WORD = re.compile(r"[A-Za-z0-9_-]+|\{(" + "|".join(TOPIC_FIELDS) + r")\}")
_UNFIT = re.compile(r"[^A-Za-z0-9_-]")
_UNFIT_IN_HOST = re.compile(r"[^A-Za-z0-9_.-]")


def is_topic_template(text: str) -> bool:
    """Return whether ``text`` is words between dots, each a plain one or one of :data:`TOPIC_FIELDS` in braces."""
    words = text.split(".")
    return len(words) <= MAX_TOPIC_WORDS and len(text) <= MAX_TOPIC_BYTES and all(map(_WORD.fullmatch, words))


def topic_of(message: SyslogMessage, template: str) -> str:
    """Return the topic that ``template`` makes of ``message``.

    A field is one word, what is not a letter, a digit, ``_`` or ``-`` becomes ``_``, and one that is not given ``-``;
    the dots of a host's name stay, so that it is several words. A topic that would be too long ends early.
    """
    words: list[str] = []
    for word in template.split("."):
        if not word.startswith("{"):
            words.append(word)
            continue
        name = word[1:-1]
        value = getattr(message, name) or "-"
        if name == "host":
            words += [part for part in _UNFIT_IN_HOST.sub("_", value).split(".") if part] or ["-"]
        else:
            words.append(_UNFIT.sub("_", value))
    return ".".join(words[:MAX_TOPIC_WORDS])[:MAX_TOPIC_BYTES].rstrip(".")
