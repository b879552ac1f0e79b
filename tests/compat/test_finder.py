"""The finder on small layers of its own: which file a name loads, and that nothing loads twice."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import pytest

import compat.nova
from compat.nova.eras import ERAS, of_imports, of_tree
from compat.nova.finder import RENAMED, Fallback, Finder

LEGACY = ("nova", "eventlet", "oslo", "mox", "mox3", "stubout", *RENAMED)


def write(root: Path, **files: str) -> Path:
    """Files below ``root``: ``nova__rpc__common="x = 1"`` is nova/rpc/common.py; ``__init__`` is ``nova__``."""
    for name, text in files.items():
        parts = name.split("__")
        path = root.joinpath(*parts[:-1], f"{parts[-1] or '__init__'}.py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    importlib.invalidate_caches()
    return root


@pytest.fixture(autouse=True)
def clean_modules() -> Iterator[None]:
    """No legacy module before and after."""

    def take() -> dict[str, ModuleType]:
        names = [name for name in sys.modules if name.partition(".")[0] in LEGACY or name.startswith("compat.nova.rpc")]
        return {name: sys.modules.pop(name) for name in names}

    before, attributes = take(), dict(vars(compat.nova))
    yield
    take()
    sys.modules.update(before)
    for name in vars(compat.nova).keys() - attributes.keys():
        delattr(compat.nova, name)


@pytest.fixture
def find(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Finder]:
    """Puts a finder over layers that each say in ``layer`` who they are."""
    core = write(
        tmp_path / "core",
        nova__rpc__="""
from nova.rpc import common
layer = "core"
def call(): return "called"
def use(): return call()
""",
        nova__rpc__common="layer = 'core'\nclass RemoteError(Exception): pass\n",
        nova__rpc__proxy="layer = 'static'\n",
        nova__openstack__common__rpc__proxy="layer = 'havana'\n",
        nova__rpcclient="layer = 'core'\n",
    )
    support = write(
        tmp_path / "support",
        nova__="layer = 'support'\n",
        nova__flags="layer = 'support'\n",
        nova__context="layer = 'support'\n",
        nova__openstack__="layer = 'support'\n",
        nova__openstack__common__="layer = 'support'\n",
        nova__openstack__common__cfg="layer = 'support'\n",
        oslo__="",
        oslo__config__="",
        oslo__config__cfg="layer = 'support'\n",
    )
    eventlet = write(tmp_path / "eventlet", eventlet__="ours = True\n", eventlet__event="ours = True\n")
    path = [entry for entry in sys.path if not (Path(entry) / "nova").is_dir()]

    def find(tree: Any = None, **settings: Any) -> Finder:
        finder = Finder(core, support, eventlet, tree, **settings)
        monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path, Fallback(support)])
        monkeypatch.setattr(sys, "path", [*path])
        return finder

    return find


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """An old Nova."""
    return write(
        tmp_path / "tree",
        nova__="layer = 'tree'\n",
        nova__flags="layer = 'tree'\n",
        nova__service="layer = 'tree'\n",
        nova__rpcclient="layer = 'tree'\n",
        nova__rpc__="raise AssertionError('the RPC modules of a tree were loaded')\n",
        nova__rpc__common="raise AssertionError\n",
        nova__rpc__impl_odd="raise AssertionError\n",
        nova__openstack__="",
        nova__openstack__common__="layer = 'tree'\n",
        nova__openstack__common__log="layer = 'tree'\n",
        nova__openstack__common__rpc__="raise AssertionError\n",
        nova__openstack__common__rpc__common="raise AssertionError\n",
        nova__openstack__common__rpc__impl_odd="raise AssertionError\n",
        nova__virt__="layer = 'tree'\n",
        nova__virt__fake="from nova import flags\nlayer = flags.layer\n",
    )


def layer(name: str) -> str:
    found: str = importlib.import_module(name).layer
    return found


# --- the order: core, tree, support --------------------------------------------------------------


def test_the_stand_in_is_core_and_support(find):
    find()
    assert {name: layer(name) for name in ("nova", "nova.rpc", "nova.rpc.common", "nova.flags")} == {
        "nova": "support",
        "nova.rpc": "core",
        "nova.rpc.common": "core",
        "nova.flags": "support",
    }


def test_a_tree_goes_between(find, tree):
    find(tree)
    names = ("nova", "nova.rpc", "nova.rpc.common", "nova.rpcclient", "nova.flags", "nova.service", "nova.context")
    assert [layer(name) for name in names] == ["tree", "core", "core", "core", "tree", "tree", "support"]


def test_the_parts_of_a_package_come_from_all_layers(find, tree):
    find(tree)
    names = ("nova.openstack.common", "nova.openstack.common.log", "nova.openstack.common.cfg")
    assert [layer(name) for name in names] == ["tree", "tree", "support"]
    assert layer("nova.virt.fake") == "tree"


@pytest.mark.parametrize("name", ["nova.rpc.impl_odd", "nova.openstack.common.rpc.impl_odd", "nova.rpc.x.y"])
def test_an_rpc_module_that_only_the_tree_has_is_not_there(find, tree, name):
    find(tree)
    with pytest.raises(ModuleNotFoundError) as raised:
        importlib.import_module(name)
    assert raised.value.name == name.removesuffix(".y")


def test_a_single_rpc_module_of_a_tree_is_not_loaded(find, tmp_path):
    find(write(tmp_path / "cactus", nova__="", nova__rpc="raise AssertionError\n"))
    assert layer("nova.rpc") == "core"


def test_a_tree_on_the_path_counts_whenever_it_comes(find, tree):
    finder = find()
    assert finder.trees() == []
    assert layer("nova.flags") == "support"
    sys.path.insert(0, str(tree))
    assert finder.trees() == [tree]
    assert layer("nova.service") == "tree"
    assert layer("nova.virt.fake") == "support"  # of the flags that are loaded


def test_a_suite_of_its_own_adds_to_the_tree_that_is_given(find, tree, tmp_path):
    suite = write(tmp_path / "suite", nova__="", nova__flags="layer = 'suite'\n", nova__tests__="layer = 'suite'\n")
    find(tree)
    sys.path.insert(0, str(suite))
    assert [layer(name) for name in ("nova", "nova.flags", "nova.tests")] == ["tree", "tree", "suite"]


def test_no_tree_at_all(find, tree):
    finder = find(False)
    sys.path.insert(0, str(tree))
    assert finder.trees() == []
    assert layer("nova.flags") == "support"
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("nova.service")


def test_a_directory_that_happens_to_be_called_nova_is_no_tree(find, tmp_path):
    finder = find()
    (tmp_path / "data" / "nova").mkdir(parents=True)
    sys.path[:0] = [str(tmp_path / "data"), str(write(tmp_path / "bin", nova="raise AssertionError"))]
    assert finder.trees() == []


def test_a_suite_without_a_package_around_it_is_found(find, tmp_path):
    find()
    sys.path.append(str(write(tmp_path / "suite", nova__tests__="", nova__tests__fakes="of = 'suite'\n")))
    from nova import flags
    from nova.tests import fakes  # type: ignore[import-not-found]

    assert (fakes.of, flags.layer) == ("suite", "support")  # type: ignore[attr-defined]


def test_the_directory_of_the_shim_is_no_tree(find):
    finder = find()
    sys.path.insert(0, str(Path(compat.nova.__file__).parents[1]))
    assert finder.trees() == []


def test_a_plain_module_of_a_tree_is_left_to_other_finders(find, tree):
    # pytest's own then rewrites the asserts of tests that lie in the tree.
    finder = find(tree)
    package = importlib.import_module("nova")
    assert finder.find_spec("nova.service", package.__path__) is None
    assert finder.find_spec("nova.context", package.__path__) is not None


# --- one module, two names -----------------------------------------------------------------------


def test_both_packages_have_the_same_modules(find):
    find()
    import nova.openstack.common.rpc.common as newer
    import nova.rpc.common as older

    assert newer is older
    assert older.__name__ == older.RemoteError.__module__ == "nova.rpc.common"
    assert older.__spec__ is not None
    assert older.__spec__.name == "nova.rpc.common"
    assert sys.modules["nova.openstack.common.rpc.common"] is older


@pytest.mark.parametrize("first", ["nova.rpc", "nova.openstack.common.rpc"])
def test_what_is_set_in_one_package_is_set_in_the_other(find, first):
    find()
    importlib.import_module(first)
    older: Any = importlib.import_module("nova.rpc")
    newer: Any = importlib.import_module("nova.openstack.common.rpc")
    assert newer.call is older.call
    assert newer.common is older.common
    newer.call = lambda: "replaced"
    assert older.use() == "replaced"
    assert vars(older)["call"] is newer.call
    del newer.call
    assert not hasattr(older, "call")
    assert "use" in dir(newer)


@pytest.mark.parametrize("name", ["nova.rpc", "nova.openstack.common.rpc"])
def test_patching_either_is_undone(find, name):
    find()
    rpc: Any = importlib.import_module(name)
    call = rpc.call
    with mock.patch(f"{name}.call", return_value="patched"):
        assert importlib.import_module("nova.rpc").use() == "patched"
    assert rpc.call is call
    assert rpc.use() == "called"


def test_each_package_has_its_own_proxy(find):
    find()
    from nova.openstack.common.rpc import proxy as newer
    from nova.rpc import proxy as older

    assert (older.layer, newer.layer) == ("static", "havana")  # type: ignore[attr-defined]
    assert sys.modules["nova.rpc"].proxy is older
    assert sys.modules["nova.openstack.common.rpc"].proxy is newer


def test_a_proxy_that_was_not_imported_is_no_attribute(find):
    find()
    importlib.import_module("nova.rpc.proxy")
    assert not hasattr(importlib.import_module("nova.openstack.common.rpc"), "proxy")


def test_before_havana_there_is_one_proxy(find):
    find(static_proxy=True)
    from nova.openstack.common.rpc import proxy

    assert proxy is importlib.import_module("nova.rpc.proxy")


@pytest.mark.parametrize(("sign", "one"), [("from oslo.config import cfg", True), ("", False)])
def test_which_it_is_is_read_off_a_tree_on_the_path(find, tmp_path, sign, one):
    find(static_proxy=None)
    sys.path.append(str(write(tmp_path / "old", nova__="", nova__config=f"# {sign}\n")))
    from nova.openstack.common.rpc import proxy

    assert (proxy is importlib.import_module("nova.rpc.proxy")) is one


def test_the_package_imports_its_modules_by_either_name(find):
    find()
    module: Any = importlib.import_module("nova.openstack.common.rpc")
    assert module.__name__ == "nova.openstack.common.rpc"
    assert importlib.util.find_spec("nova.openstack.common.rpc") is module.__spec__
    namespace: dict[str, Any] = {}
    exec("from nova.openstack.common.rpc import *", namespace)
    exec("import nova.openstack.common.rpc as rpc; answer = rpc.use()", namespace)
    assert namespace["answer"] == "called"


# --- other names ---------------------------------------------------------------------------------


def test_exceptions_is_builtins(find):
    find()
    exceptions: Any = importlib.import_module("exceptions")
    assert exceptions.ValueError is ValueError
    assert importlib.import_module("__builtin__") is exceptions
    assert sys.modules["builtins"].__spec__.name == "builtins"  # type: ignore[union-attr]


def test_eventlet_is_ours_and_nothing_else(find, tmp_path):
    find()
    sys.path.insert(0, str(write(tmp_path / "site", eventlet__="ours = False\n", eventlet__patcher="ours = False\n")))
    import eventlet.event

    assert eventlet.event.ours  # type: ignore[attr-defined]
    assert eventlet.ours  # type: ignore[attr-defined]
    with pytest.raises(ModuleNotFoundError, match=r"eventlet\.patcher"):
        importlib.import_module("eventlet.patcher")


@pytest.mark.parametrize("name", ["mox", "mox3", "mox3.mox", "stubout"])
def test_what_suites_replace_things_with_is_ours_though_another_is_installed(find, tmp_path, name):
    finder = find()
    of_tests = {"mox": "layer = 'ours'\n", "mox3__": "layer = 'ours'\n", "stubout": "layer = 'ours'\n"}
    write(finder.support, **of_tests, mox3__mox="layer = 'ours'\n")
    installed = "print 'the mox of the registries is in Python 2'\n"
    sys.path.insert(0, str(write(tmp_path / "site", mox=installed, stubout=installed, mox3__="", mox3__mox=installed)))
    assert layer(name) == "ours"


def test_unittest2_is_unittest(find):
    find()
    assert importlib.import_module("unittest2") is importlib.import_module("unittest")
    assert importlib.import_module("unittest2.case") is importlib.import_module("unittest.case")


def test_support_for_what_the_environment_lacks(find):
    find()
    assert layer("oslo.config.cfg") == "support"


def test_what_the_environment_has_goes_first(find, tmp_path):
    find()
    site = write(tmp_path / "site", oslo__="", oslo__config__="", oslo__config__cfg="layer = 'site'\n")
    sys.path.insert(0, str(site))
    assert layer("oslo.config.cfg") == "site"


def test_the_name_of_the_shim_leads_to_nova(find):
    find()
    common: Any = importlib.import_module("compat.nova.rpc.common")
    assert common is importlib.import_module("nova.rpc.common")
    from compat.nova import rpc  # type: ignore[attr-defined]

    assert rpc is importlib.import_module("nova.rpc")


def test_the_shims_own_modules_are_its_own(find):
    find()
    assert importlib.import_module("compat.nova.finder").Finder is Finder
    with pytest.raises(ModuleNotFoundError, match=r"compat\.nova\.nothing"):
        importlib.import_module("compat.nova.nothing")


def test_a_legacy_module_does_not_load_under_the_name_of_its_file(find):
    find()
    with pytest.raises(ImportError, match="legacy names"):
        importlib.import_module("compat.nova.modules.support.nova.flags")


# --- eras ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("era", "files"),
    [
        ("cactus", {"rpc": "def call(): pass", "context": "def __init__(self, user, project): pass"}),
        ("diablo", {"rpc": "def multicall(): pass"}),
        ("diablo", {"rpc__": "", "rpc__amqp": ""}),
        ("diablo", {"rpc__": "", "rpc__impl_carrot": "", "context": "def __init__(self, user_id): pass"}),
        ("essex", {"rpc__": "", "rpc__impl_carrot": "", "rpc__impl_fake": ""}),
        ("essex", {"flags": "from nova.openstack.common import cfg", "openstack__common__cfg": ""}),
        ("folsom", {"rpc__impl_fake": "", "rpc__dispatcher": ""}),
        ("folsom", {"openstack__common__rpc__": "from nova.openstack.common import cfg"}),
        ("folsom", {"service": "manager.create_rpc_dispatcher()", "flags": "from nova.openstack.common import cfg"}),
        ("grizzly", {"openstack__common__rpc__": "from oslo.config import cfg"}),
        (
            "havana",
            {"openstack__common__rpc__": "from oslo.config import cfg", "openstack__common__rpc__serializer": ""},
        ),
        ("havana", {"rpcclient": ""}),
        (None, {"tests__test_rpc": ""}),
    ],
)
def test_the_era_of_a_tree(tmp_path, era, files):
    assert of_tree(write(tmp_path, nova__="", **{f"nova__{name}": text for name, text in files.items()})) == era


@pytest.mark.parametrize(
    ("era", "imported"),
    [
        ("essex", ["nova.rpc", "nova.rpc.common", "nova.flags"]),
        ("folsom", ["nova.rpc", "nova.rpc.dispatcher"]),
        ("folsom", ["nova.openstack.common.rpc", "nova.openstack.common.cfg"]),
        ("grizzly", ["nova.openstack.common.rpc", "oslo.config.cfg"]),
        ("havana", ["nova.openstack.common.rpc.serializer", "oslo.config.cfg"]),
    ],
)
def test_the_era_of_imports(era, imported):
    assert of_imports(imported) == era
    assert era in ERAS
