"""JSON from a file that anybody may have written, parsed one value of a bounded length at a time.

:func:`json.loads` parses all of a file before it returns, and makes of a few megabytes of brackets hundreds in memory.
A reader that others wait for takes the values of an object or a list one by one, and may rest between them.
"""

from __future__ import annotations

import codecs
import json
from typing import Any

__all__ = ["LONGEST_VALUE", "BoundedJson", "NotJson"]

#: Most characters of one value, and of the white space before it.
LONGEST_VALUE = 8192
_SPACE = " \t\n\r"


class NotJson(Exception):
    """Raised with the reason why the text is not read any further."""


class BoundedJson:
    """The values and punctuation in a JSON text (RFC 8259), from its begin to its end.

    No call looks at more than twice ``LONGEST_VALUE`` characters.

    Args:
        data: UTF-8, with or without a byte order mark.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._decode = codecs.getincrementaldecoder("utf-8-sig")().decode
        self._parse = json.JSONDecoder(object_pairs_hook=_object).raw_decode
        #: The decoded text around ``_place``, the bytes that were decoded, and the characters before the text.
        self._text = ""
        self._place = self._decoded = self._before = 0

    def next(self) -> str:
        """The next character that is no white space, which is not passed; empty at the end of the text.

        Raises:
            NotJson: the text is no UTF-8, or has too much white space there.
        """
        self._fill()
        text, place = self._text, self._place
        end = len(text)
        while place < end and text[place] in _SPACE:
            place += 1
        if place == end and self._decoded < len(self._data):
            raise self._error(f"more than {LONGEST_VALUE} characters of white space")
        self._place = place
        return text[place : place + 1]

    def take(self, expected: str) -> str:
        """Pass the next character, one of ``expected``, and return it.

        Raises:
            NotJson: it is another one.
        """
        found = self.next()
        if not found or found not in expected:
            raise self._error(f"expected {' or '.join(expected)}, not {repr(found) if found else 'the end'}")
        self._place += 1
        return found

    def value(self) -> Any:
        """Pass the next value and return it; an object has each of its names once.

        Raises:
            NotJson: there is none, it is too long or too deep, or has a name twice.
        """
        self.next()
        self._fill()
        try:
            value, end = self._parse(self._text, self._place)
        except json.JSONDecodeError as error:
            self._place = error.pos
            raise self._error(self._whole(error.msg)) from None
        except (ValueError, RecursionError) as error:
            # A number of thousands of digits; brackets within brackets; a name that is there twice.
            raise self._error(str(error)) from None
        if end - self._place > LONGEST_VALUE or (end == len(self._text) and self._decoded < len(self._data)):
            raise self._error(f"a value of more than {LONGEST_VALUE} characters")
        self._place = end
        return value

    def _whole(self, problem: str) -> str:
        if self._decoded < len(self._data):
            # Its end is not in sight, of whatever is there.
            return f"{problem}, or a value of more than {LONGEST_VALUE} characters"
        return problem

    def _error(self, problem: str) -> NotJson:
        return NotJson(f"{problem} (at character {self._before + self._place + 1})")

    def _fill(self) -> None:
        """Have ``LONGEST_VALUE`` characters in sight, or all that are left."""
        while len(self._text) - self._place <= LONGEST_VALUE and self._decoded < len(self._data):
            more = self._data[self._decoded : self._decoded + LONGEST_VALUE]
            self._decoded += len(more)
            try:
                found = self._decode(more, self._decoded == len(self._data))
            except UnicodeDecodeError as error:
                raise self._error(f"no UTF-8: {error.reason}") from None
            self._before += self._place
            self._text, self._place = self._text[self._place :] + found, 0


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object has a name twice")
    return found
