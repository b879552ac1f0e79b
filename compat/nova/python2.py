"""Gives back what Python 3 took from the language and its library and ``2to3`` does not replace.

Each is a plain addition: nothing that exists is changed, except that the ``install`` of ``gettext`` takes ``unicode``,
also under the name ``str``, which is what ``2to3`` makes of every word ``unicode``.
"""

from __future__ import annotations

import base64
import builtins
import collections
import collections.abc
import configparser
import gettext
import inspect
import string
import sys
import threading
import time
import types
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
_install_translations = gettext.NullTranslations.install


def _install_gettext(
    domain: str,
    localedir: str | None = None,
    unicode: object = True,
    codeset: str | None = None,
    names: Collection[str] | None = None,
    *,
    str: object = True,
) -> None:
    _install(domain, localedir, names=names)


def _translations_install(
    self: gettext.NullTranslations, unicode: Any = True, names: Collection[str] | None = None, *, str: object = True
) -> None:
    # Today's callers, gettext itself among them, have the names in the first place.
    by_position = None if isinstance(unicode, int) else unicode
    _install_translations(self, names or by_position)


def _cmp(a: Any, b: Any) -> int:
    return int(a > b) - int(a < b)


class _OldStyleInstance:
    """Nothing is one."""


#: Functions of the module string that are methods of text, which they take as their first argument.
_STRING_FUNCTIONS = (
    "capitalize", "center", "count", "expandtabs", "find", "index", "ljust", "lower", "lstrip", "replace", "rfind",
    "rindex", "rjust", "rstrip", "split", "strip", "swapcase", "translate", "upper", "zfill",
)  # fmt: skip


def _join(words: Collection[str], sep: str = " ") -> str:
    return sep.join(words)


def restore() -> None:
    """Add the names; may be called again."""
    _restore_language()
    _restore_string()
    for name in collections.abc.__all__:
        _add(collections, name, getattr(collections.abc, name))
    _add(inspect, "getargspec", _getargspec)
    _add(time, "clock", time.process_time)
    # Not threading.Thread: patching has put a class derived from the standard one in its place.
    _add(type(threading.main_thread()).__mro__[1], "isAlive", threading.Thread.is_alive)
    _add(base64, "encodestring", base64.encodebytes)
    _add(base64, "decodestring", base64.decodebytes)
    _add(configparser, "SafeConfigParser", configparser.ConfigParser)
    _add(configparser.RawConfigParser, "readfp", configparser.RawConfigParser.read_file)
    _add(gettext.NullTranslations, "ugettext", gettext.NullTranslations.gettext)
    _add(gettext.NullTranslations, "ungettext", gettext.NullTranslations.ngettext)
    _add_own(gettext.GNUTranslations, "ugettext", gettext.GNUTranslations.gettext)
    _add_own(gettext.GNUTranslations, "ungettext", gettext.GNUTranslations.ngettext)
    vars(gettext)["install"] = _install_gettext
    setattr(gettext.NullTranslations, "install", _translations_install)  # noqa: B010
    for name, today in _ASSERTIONS.items():
        _add(unittest.TestCase, name, getattr(unittest.TestCase, today))


def _restore_language() -> None:
    # 2to3 renames the import and each `__builtin__.x`, but not the name alone, as in `setattr(__builtin__, ...)`.
    _add(builtins, "__builtin__", builtins)
    _add(builtins, "cmp", _cmp)
    _add(builtins, "file", open)
    _add(sys, "exc_clear", lambda: None)
    _add(types, "ClassType", type)
    _add(types, "InstanceType", _OldStyleInstance)


def _restore_string() -> None:
    _add(string, "letters", string.ascii_letters)
    _add(string, "lowercase", string.ascii_lowercase)
    _add(string, "uppercase", string.ascii_uppercase)
    _add(string, "maketrans", str.maketrans)
    _add(string, "join", _join)
    _add(string, "joinfields", _join)
    _add(string, "splitfields", str.split)
    _add(string, "atoi", int)
    _add(string, "atol", int)
    _add(string, "atof", float)
    for name in _STRING_FUNCTIONS:
        _add(string, name, getattr(str, name))


def _add(owner: object, name: str, value: object) -> None:
    if not hasattr(owner, name):
        setattr(owner, name, value)


def _add_own(owner: type, name: str, value: object) -> None:
    """Add what ``owner`` would otherwise inherit."""
    if name not in vars(owner):
        setattr(owner, name, value)
