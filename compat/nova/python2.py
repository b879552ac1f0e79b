"""Gives back what Python 3 took from the standard library and ``2to3`` does not replace.

Each is a plain addition: nothing that exists is changed, except that ``gettext.install`` takes ``unicode``.
"""

from __future__ import annotations

import base64
import collections
import collections.abc
import gettext
import inspect
import string
import time
import unittest
from collections.abc import Collection
from typing import Any, NamedTuple

__all__ = ["restore"]

#: unittest's names of that time -> today's. Python 3.11 has some of them yet, 3.12 none.
_ASSERTIONS = {
    "assert_": "assertTrue",
    "assertAlmostEquals": "assertAlmostEqual",
    "assertEquals": "assertEqual",
    "assertItemsEqual": "assertCountEqual",
    "assertNotAlmostEquals": "assertNotAlmostEqual",
    "assertNotEquals": "assertNotEqual",
    "assertNotRegexpMatches": "assertNotRegex",
    "assertRaisesRegexp": "assertRaisesRegex",
    "assertRegexpMatches": "assertRegex",
    "failIf": "assertFalse",
    "failIfEqual": "assertNotEqual",
    "failUnless": "assertTrue",
    "failUnlessEqual": "assertEqual",
    "failUnlessRaises": "assertRaises",
}


class _ArgSpec(NamedTuple):
    args: list[str]
    varargs: str | None
    keywords: str | None
    defaults: tuple[Any, ...] | None


def _getargspec(function: Any) -> _ArgSpec:
    full = inspect.getfullargspec(function)
    return _ArgSpec(full.args, full.varargs, full.varkw, full.defaults)


_install = gettext.install


def _install_gettext(
    domain: str,
    localedir: str | None = None,
    unicode: object = True,
    codeset: str | None = None,
    names: Collection[str] | None = None,
) -> None:
    _install(domain, localedir, names=names)


def restore() -> None:
    """Add the names; may be called again."""
    for name in collections.abc.__all__:
        _add(collections, name, getattr(collections.abc, name))
    _add(inspect, "getargspec", _getargspec)
    _add(string, "letters", string.ascii_letters)
    _add(string, "lowercase", string.ascii_lowercase)
    _add(string, "uppercase", string.ascii_uppercase)
    _add(string, "maketrans", str.maketrans)
    _add(time, "clock", time.process_time)
    _add(base64, "encodestring", base64.encodebytes)
    _add(base64, "decodestring", base64.decodebytes)
    _add(gettext.NullTranslations, "ugettext", gettext.NullTranslations.gettext)
    _add(gettext.GNUTranslations, "ugettext", gettext.GNUTranslations.gettext)
    vars(gettext)["install"] = _install_gettext
    for name, today in _ASSERTIONS.items():
        _add(unittest.TestCase, name, getattr(unittest.TestCase, today))


def _add(owner: object, name: str, value: object) -> None:
    if not hasattr(owner, name):
        setattr(owner, name, value)
