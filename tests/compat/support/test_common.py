"""The smaller modules, and ``nova.utils``, which many of them once were."""

from __future__ import annotations

import builtins
import gc
import importlib
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import gevent
import pytest
from gevent.event import Event

import compat.nova
from compat.nova import options

ROOT = Path(compat.nova.__file__).parent / "modules" / "support"
AT = datetime(2012, 3, 4, 5, 6, 7, 8)


def names() -> list[str]:
    files = [path.relative_to(ROOT).with_suffix("") for path in ROOT.rglob("*.py") if "nova/test" not in str(path)]
    return sorted(".".join(path.parts).removesuffix(".__init__") for path in files if path.parts[0] in ("nova", "oslo"))


@pytest.mark.parametrize("name", [each for each in names() if "rpcclient" not in each and "baserpc" not in each])
def test_each_module_loads_alone(load, name):
    assert load(name) is sys.modules[name]


def test_nothing_stays(stand_in):
    stand_in()("nova.utils")
    compat.nova.uninstall()
    assert not [name for name in sys.modules if name.partition(".")[0] == "nova"]
    assert options.configurations() == []


def test_underscore_is_known(load):
    load("nova")
    assert vars(builtins)["_"]("text") == "text"


# --- local --------------------------------------------------------------------------------------


class Thing:
    pass


def test_weak_and_strong_stores(load):
    local = load("nova.openstack.common.local")
    thing = Thing()
    local.store.thing, local.strong_store.thing = thing, thing
    assert local.store.thing is thing and load("nova.local").store is local.store
    assert gevent.spawn(lambda: (hasattr(local.store, "thing"), hasattr(local.strong_store, "thing"))).get() == (
        False,
        False,
    )
    del local.strong_store.thing, thing
    gc.collect()
    assert local.store.thing is None
    del local.store.thing
    assert not hasattr(local.store, "thing")
    with pytest.raises(AttributeError):
        del local.store.thing
    local.store.thing = None
    assert local.store.thing is None


# --- imports, JSON, times -----------------------------------------------------------------------


def test_importing_by_name(load):
    utils = load("nova.openstack.common.importutils")
    assert utils.import_class("collections.OrderedDict").__name__ == "OrderedDict"
    assert utils.import_object("datetime.timedelta", 1) == timedelta(1)
    assert utils.import_object_ns("datetime", "timedelta", 1) == timedelta(1)
    assert utils.import_object_ns("nobody", "datetime.timedelta", 1) == timedelta(1)
    assert utils.try_import("nobodys_module", 5) == 5
    for name in ("nobodys.Class", "collections.Nobody"):
        with pytest.raises(ImportError):
            utils.import_class(name)


def test_to_essex_what_cannot_be_imported_is_an_error_of_nova(load):
    utils, exception = load("nova.utils"), load("nova.exception")
    for name in ("nobodys.Class", "collections.Nobody"):
        with pytest.raises(exception.ClassNotFound, match=name.rpartition(".")[2]):
            utils.import_class(name)
    assert utils.import_object("collections") is __import__("collections")


def test_json(load, tmp_path):
    json = load("nova.openstack.common.jsonutils")
    assert json.loads(json.dumps({"at": AT})) == {"at": "2012-03-04T05:06:07.000008"}
    assert json.dumps({"b": {1}, "a": 1}, sort_keys=True) == '{"a": 1, "b": [1]}'
    assert json.dumps([AT], default=lambda value: "x") == '["x"]'
    with pytest.raises(TypeError, match=r"args\.x"):
        json.dumps({"args": {"x": object()}})
    path = tmp_path / "x"
    with open(path, "w") as file:
        json.dump({"a": AT}, file)
    with open(path) as file:
        assert json.load(file) == {"a": "2012-03-04T05:06:07.000008"}


def test_times(load):
    times = load("nova.openstack.common.timeutils")
    assert times.isotime(AT) == "2012-03-04T05:06:07Z"
    assert times.isotime(AT, subsecond=True) == "2012-03-04T05:06:07.000008Z"
    assert times.strtime(AT) == "2012-03-04T05:06:07.000008"
    assert times.parse_strtime(times.strtime(AT)) == AT
    assert times.normalize_time(times.parse_isotime("2012-03-04T06:06:07+01:00")) == AT.replace(microsecond=0)
    assert times.unmarshall_time(times.marshall_now(AT)) == AT
    assert times.strtime(AT, "%Y") == "2012"
    with pytest.raises(ValueError, match="x"):
        times.parse_isotime("x")


def test_a_stopped_clock(load):
    times = load("nova.openstack.common.timeutils")
    times.set_time_override(AT)
    times.advance_time_seconds(60)
    assert times.utcnow() == AT + timedelta(minutes=1)
    assert load("nova.utils").utcnow() == times.utcnow()
    assert times.is_older_than(AT, 59) and not times.is_older_than(AT, 60)
    assert times.is_newer_than(AT + timedelta(minutes=3), 60)
    times.set_time_override([AT, AT + timedelta(1)])
    assert [times.utcnow().day, times.utcnow().day] == [4, 5]
    times.clear_time_override()
    assert times.utcnow() > AT + timedelta(days=365) and times.utcnow().tzinfo is None


def test_text(load):
    text = load("nova.openstack.common.strutils")
    assert [text.bool_from_string(each) for each in ("Yes", "1", "off", None, True)] == [True, True, False, False, True]
    assert (text.to_bytes("10KB"), text.to_bytes("3"), text.to_slug("A b  ç!")) == (10240, 3, "a-b-c")
    with pytest.raises(TypeError):
        text.to_bytes("1 parsec")
    with pytest.raises(ValueError, match="maybe"):
        text.bool_from_string("maybe", strict=True)


# --- excutils, looping calls, locks, services ---------------------------------------------------


def test_an_exception_is_raised_again(load, caplog):
    save = load("nova.openstack.common.excutils").save_and_reraise_exception
    with pytest.raises(KeyError):  # noqa: PT012
        try:
            raise KeyError("first")
        except KeyError:
            with save():
                pass
    try:
        raise KeyError("first")
    except KeyError:
        with save() as saved:
            saved.reraise = False
    with pytest.raises(ValueError, match="second"):  # noqa: PT012
        try:
            raise KeyError("first")
        except KeyError:
            with save():
                raise ValueError("second")  # noqa: B904 - that is the point
    assert "Original exception being dropped" in caplog.text and "first" in caplog.text


def test_a_loop_ends_as_its_function_says(load):
    utils = load("nova.utils")
    runs: list[int] = []

    def run(most: int) -> None:
        runs.append(most)
        if len(runs) == most:
            raise utils.LoopingCallDone("done")

    assert utils.LoopingCall(run, 3).start(0).wait() == "done"
    assert runs == [3, 3, 3]


def test_a_loop_is_stopped(load):
    utils = load("nova.utils")
    first = Event()
    timer = utils.LoopingCall(first.set)
    timer.start(3600)
    assert first.wait(20)
    gevent.sleep(0)
    timer.stop()
    with gevent.Timeout(30):
        assert timer.wait() is True


def test_a_loop_stops_itself(load):
    timer: Any = load("nova.utils").LoopingCall(lambda: timer.stop())  # noqa: PLW0108 - it is not made yet
    with gevent.Timeout(30):
        assert timer.start(3600).wait() is True


def test_the_error_of_a_loop_goes_to_whoever_waits(load, caplog):
    with pytest.raises(ZeroDivisionError):
        load("nova.utils").LoopingCall(lambda: 1 // 0).start(0).wait()
    assert "in looping call" in caplog.text


def test_not_now(load):
    ran = Event()
    timer = load("nova.utils").LoopingCall(ran.set)
    timer.start(3600, now=False)
    gevent.sleep(0)
    assert not ran.is_set()
    timer.stop()


def test_a_dynamic_loop(load):
    module = load("nova.openstack.common.loopingcall")
    pauses = iter([0.0, None])

    def run() -> float | None:
        try:
            return next(pauses)
        except StopIteration:
            raise module.LoopingCallDone(5) from None

    with gevent.Timeout(30):
        assert module.DynamicLoopingCall(run).start(periodic_interval_max=0.001).wait() == 5


@pytest.mark.parametrize("external", [False, True])
def test_locks_keep_others_out(load, tmp_path, external):
    utils, local = load("nova.utils"), load("nova.openstack.common.local")
    load("nova.flags").FLAGS.lock_path = str(tmp_path)
    seen: list[str] = []

    @utils.synchronized("a/b", external=external)
    def run(name: str) -> None:
        seen.append(f"{name} in {local.strong_store.locks_held}")
        gevent.sleep(0)
        seen.append(f"{name} out")

    gevent.joinall([gevent.spawn(run, "1"), gevent.spawn(run, "2")], timeout=5, raise_error=True)
    assert seen == ["1 in ['a/b']", "1 out", "2 in ['a/b']", "2 out"]
    assert [path.name for path in tmp_path.iterdir()] == (["nova-a_b"] if external else [])


def test_lock_files_are_cleaned_up(load, tmp_path):
    load("nova.flags").FLAGS.lock_path = str(tmp_path)
    for name in ("nova-x.lock", "nova-host-999999999", f"nova-host-{__import__('os').getpid()}", "other.lock"):
        (tmp_path / name).touch()
    load("nova.utils").cleanup_file_locks()
    assert {path.name for path in tmp_path.iterdir()} == {f"nova-host-{__import__('os').getpid()}", "other.lock"}


def test_a_service_and_its_threads(load):
    service: Any = load("nova.openstack.common.service")
    base: Any = service.Service
    log: list[str] = []

    class Mine(base):  # type: ignore[misc]
        def start(self) -> None:
            self.tg.add_timer(3600, log.append, None, "tick")
            self.tg.add_thread(log.append, "thread")

    launcher = service.Launcher()
    launcher.launch_service(Mine())
    gevent.sleep(0)
    for _ in range(5):
        gevent.sleep(0)
    launcher.stop()
    with gevent.Timeout(30):
        launcher.wait()
    assert sorted(log) == ["thread", "tick"]


# --- utils --------------------------------------------------------------------------------------


@pytest.fixture
def utils(load) -> Any:
    return load("nova.utils")


def test_running_programs(utils):
    assert utils.execute("cat", process_input="text") == ("text", "")
    assert utils.execute("sh", "-c", "exit 3", check_exit_code=[0, 3]) == ("", "")
    assert utils.execute("echo $X", shell=True, addl_env={"X": "1"})[0] == "1\n"
    assert utils.execute("false", check_exit_code=False) == ("", "")
    exception = importlib.import_module("nova.exception")
    with pytest.raises(exception.ProcessExecutionError) as caught:
        utils.execute("sh", "-c", "echo bad >&2; exit 4")
    assert (caught.value.exit_code, caught.value.stderr) == (4, "bad\n")
    with pytest.raises(Exception, match="unknown keyword"):
        utils.execute("true", surprise=1)
    assert "Exit code: 1" in utils.trycmd("false")[1]


def test_conversions(utils):
    assert utils.to_primitive({"at": AT, "row": {1}}) == {"at": "2012-03-04 05:06:07.000008", "row": [1]}
    assert utils.loads(utils.dumps({"a": (1, 2)})) == {"a": [1, 2]}
    assert utils.import_object("nova.utils.UndoManager").undo_stack == []
    assert utils.get_from_path([{"a": [{"b": 1}, {"b": 2}]}, {"a": {"b": 3}}, {}], "a/b") == [1, 2, 3]
    assert utils.flatten_dict({"a": {"b": 1}, "c": 2}) == {"b": 1, "c": 2}
    assert utils.partition_dict({"a": 1, "b": 2}, ["a"]) == ({"a": 1}, {"b": 2})
    assert utils.map_dict_keys({"a": 1, "b": 2}, {"a": "x"}) == {"x": 1, "b": 2}
    assert utils.sanitize_hostname("A_b c!.") == "a-b-c"
    assert utils.utf8("ä") == b"\xc3\xa4" and utils.last_octet("10.0.0.7") == 7
    assert utils.is_valid_ipv4("10.0.0.1") and not utils.is_valid_ipv4("10.0.0") and utils.is_valid_cidr("10.0.0.0/8")


def test_names(utils):
    assert utils.generate_uid("i").startswith("i-") and len(utils.generate_uid("i")) == 10
    assert utils.is_uuid_like(str(utils.gen_uuid())) and not utils.is_uuid_like("x")
    assert utils.generate_request_id().startswith("req-")
    assert len(utils.generate_password(20)) == 20 and utils.generate_password() != utils.generate_password()
    assert len(utils.generate_mac_address().split(":")) == 6


def test_the_default_flag_file(utils, tmp_path, monkeypatch):
    (tmp_path / "x.conf").touch()
    args = ["prog", "a"]
    utils.default_flagfile(str(tmp_path / "x.conf"), args)
    utils.default_flagfile(str(tmp_path / "x.conf"), args)
    assert args == ["prog", f"--flagfile={tmp_path / 'x.conf'}", "a"]


def test_a_pluggable_module(utils, load):
    flags = load("nova.flags")
    flags.DEFINE_string("db_backend", "json", "which")
    module = utils.LazyPluggable("db_backend", json="json")
    assert module.loads("[1]") == [1]
    flags.FLAGS.db_backend = "nobodys"
    with pytest.raises(ValueError, match="nobodys"):
        _ = utils.LazyPluggable("db_backend", json="json").loads


def test_undoing(utils):
    undone: list[int] = []
    manager = utils.UndoManager()
    manager.undo_with(lambda: undone.append(1))
    manager.undo_with(lambda: undone.append(2))
    with pytest.raises(KeyError):  # noqa: PT012
        try:
            raise KeyError
        except KeyError:
            manager.rollback_and_reraise("failed")
    assert undone == [2, 1]


def test_temporary_changes(utils):
    thing, values = Thing(), {"a": 1}
    with utils.temporary_mutation(thing, x=1), utils.temporary_mutation(values, a=2, b=3):
        assert (thing.x, values) == (1, {"a": 2, "b": 3})  # type: ignore[attr-defined]
    assert not hasattr(thing, "x") and values == {"a": 1}


def test_whether_a_service_is_up(utils):
    utils.set_time_override(AT)
    up = {"updated_at": None, "created_at": AT - timedelta(seconds=60)}
    assert utils.service_is_up(up)
    assert not utils.service_is_up(up | {"updated_at": AT - timedelta(seconds=61)})


def test_patching_modules(utils, load, monkeypatch):
    import types

    module: Any = types.ModuleType("a_module")
    module.run = lambda: "plain"
    module.run.__module__ = "a_module"
    monkeypatch.setitem(sys.modules, "a_module", module)
    decorators: Any = types.ModuleType("decorators")
    decorators.shout = lambda name, function: lambda: f"{name} {function()}"
    monkeypatch.setitem(sys.modules, "decorators", decorators)
    flags = load("nova.flags").FLAGS
    flags.monkey_patch, flags.monkey_patch_modules = True, ["a_module:decorators.shout"]
    utils.monkey_patch()
    assert module.run() == "a_module.run plain"


@pytest.mark.parametrize(("era", "version"), [("cactus", "2011.2"), ("essex", "2012.1"), ("havana", "2013.2")])
def test_the_version(stand_in, era, version):
    assert stand_in(era)("nova.version").version_string() == version
