"""Features that Python 3 removed: text of the time as 2to3 really leaves it, imported under the shim.

The modules are written in Python 2, converted by 2to3 and never touched by hand.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

import pytest

from compat.nova import ERAS
from tests.compat.conversion import convert, needs_2to3
from tests.compat.test_finder import write
from tests.compat.test_run import output

pytestmark = needs_2to3

#: Name of the module -> Python 2 text that leaves ``result``, and what that is then.
IDIOMS: dict[str, tuple[str, object]] = {
    "gettext_install": (
        """
import gettext
gettext.install('nova', unicode=1)
result = _(u'text')
""",
        "text",
    ),
    "gettext_install_all": (
        """
import gettext
gettext.install('nova', '/nowhere', unicode=True, codeset='utf-8', names=['ngettext'])
result = ngettext(u'one', u'many', 2)
""",
        "many",
    ),
    "gettext_install_by_position": (
        """
import gettext
gettext.install('nova', None, True)
result = _(u'text')
""",
        "text",
    ),
    "translation_install": (
        """
import gettext
found = gettext.translation('nova', fallback=True)
found.install(unicode=True)
result = (_(u'text'), found.ugettext(u'a'), found.ungettext(u'one', u'many', 1))
""",
        ("text", "a", "one"),
    ),
    "builtin_module": (
        """
import __builtin__
__builtin__.legacy_answer = 7
result = legacy_answer
""",
        7,
    ),
    "builtin_by_name": (
        """
import sys
__import__('__builtin__').legacy_name = 8
result = sys.modules['__builtin__'].legacy_name
""",
        8,
    ),
    "builtin_alone": (
        """
import __builtin__
setattr(__builtin__, 'legacy_text', u'text')
result = legacy_text
""",
        "text",
    ),
    "exceptions_module": (
        """
import exceptions
result = (issubclass(exceptions.KeyError, exceptions.StandardError))
""",
        True,
    ),
    "standard_error": (
        """
class Error(StandardError):
    pass


try:
    raise Error, 'text'
except Error, error:
    result = str(error)
""",
        "text",
    ),
    "compare": (
        """
result = [cmp(1, 2), cmp(u'b', u'a'), cmp([1], [1])]
""",
        [-1, 1, 0],
    ),
    "open_file": (
        """
with file(__file__) as opened:
    result = opened.read(7)
""",
        "\nwith f",
    ),
    "string_functions": (
        """
import string
result = [string.join(['a', 'b'], ','), string.split('a b'), string.strip(' a '), string.lower('A'),
          string.replace('aa', 'a', 'b'), string.atoi('7'), string.letters[:2], string.zfill('7', 2)]
""",
        ["a,b", ["a", "b"], "a", "a", "bb", 7, "ab", "07"],
    ),
    "kinds": (
        """
import types
result = [isinstance({}, types.InstanceType), isinstance(dict, types.ClassType),
          isinstance(u'a', types.StringTypes),
          isinstance({}, types.DictType), isinstance(None, types.NoneType)]
""",
        [False, True, True, True, True],
    ),
    "clear": (
        """
import sys
result = sys.exc_clear()
""",
        None,
    ),
    "thread_is_alive": (
        """
import threading
result = threading.currentThread().isAlive()
""",
        True,
    ),
    "ini_file": (
        r"""
import ConfigParser
import StringIO
parser = ConfigParser.SafeConfigParser()
parser.readfp(StringIO.StringIO('[a]\nb = 1\n'))
result = parser.get('a', 'b')
""",
        "1",
    ),
    "test_case": (
        """
import unittest2
from unittest2 import case


class Test(unittest2.TestCase):
    def runTest(self):
        self.assertItemsEqual([1, 2], [2, 1])
        self.assertEquals(1, 1)
        self.assert_(True)


ran = unittest2.TestResult()
Test()(ran)
result = [case.SkipTest is unittest2.SkipTest, ran.wasSuccessful()]
""",
        [True, True],
    ),
    "implicit_relative_import": (
        """
import sibling
result = sibling.NAME
""",
        "sibling",
    ),
    "metaclass": (
        """
class Meta(type):
    marked = True


class A(object):
    __metaclass__ = Meta

    def __nonzero__(self):
        return False


result = [A.marked, bool(A())]
""",
        [True, False],
    ),
    "renamed_modules": (
        """
import Queue, urllib2, urlparse
import cPickle as pickle
import urllib
import itertools
import os
result = [Queue.Empty.__name__, urllib2.URLError.__name__, urlparse.urlparse('a://b').netloc,
          urllib.urlencode({'a': 1}), pickle.loads(pickle.dumps(1)), list(itertools.izip([1], [2])),
          os.getcwdu() == os.getcwd()]
""",
        ["Empty", "URLError", "b", "a=1", 1, [(1, 2)], True],
    ),
    "small_things": (
        """
import sys
found = {u'a': 0755}
keys = found.keys()
keys.sort()
print >>sys.stderr, `keys`,
exec 'found["b"] = 1'
result = [keys, found.has_key('a'), found['a'], found['b'], isinstance(u'', basestring), sys.maxint > 0]
""",
        [["a"], True, 493, 1, True, True],
    ),
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, object]:
    """The remains of each module, all converted at once and run in one program."""
    root = tmp_path_factory.mktemp("idioms")
    texts = {f"legacy__{name}": text for name, (text, _) in IDIOMS.items()}
    write(root, legacy__="", legacy__sibling="NAME = 'sibling'\n", **texts)
    convert(root / "legacy")
    write(
        root,
        main=f"""
import importlib
results = {{}}
for name in {list(IDIOMS)!r}:
    try:
        results[name] = importlib.import_module("legacy." + name).result
    except Exception as error:
        results[name] = repr(error)
print(results)
""",
    )
    said = output("--", "main.py", cwd=root, stderr=None)
    found: dict[str, object] = ast.literal_eval(said)
    return found


@pytest.mark.parametrize("name", IDIOMS)
def test_what_2to3_leaves_runs(results: Mapping[str, object], name: str) -> None:
    assert results[name] == IDIOMS[name][1]


@pytest.mark.parametrize("era", ERAS)
def test_a_tree_that_installs_gettext_is_imported_as_2to3_leaves_it(tmp_path: Path, era: str) -> None:
    tree = write(
        tmp_path / "tree",
        nova__="import gettext\n\ngettext.install('nova', unicode=1)\n",
        nova__service="from nova import rpc\n\nNAME = _(u'service')\n",
    )
    convert(tree / "nova")
    assert "unicode" not in (tree / "nova" / "__init__.py").read_text()
    program = "from nova import service; print(service.NAME)"
    assert output("--tree", str(tree), "--era", era, "--", "-c", program, cwd=tmp_path) == "service\n"
