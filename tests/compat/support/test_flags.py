from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def flags(load) -> Any:
    return load("nova.flags")


@pytest.fixture
def FLAGS(flags) -> Any:
    flags.DEFINE_string("name", "none", "a name")
    flags.DEFINE_integer("count", "3", "a number")
    flags.DEFINE_bool("fast", False, "a switch")
    flags.DEFINE_float("ratio", 0.5, "a number")
    flags.DEFINE_list("names", "a,b", "names")
    flags.DEFINE_multistring("many", "one", "names")
    flags.DEFINE_enum("kind", "a", ["a", "b"], "a kind")
    flags.DEFINE_string("derived", "$name/$count", "made of others")
    return flags.FLAGS


def test_defaults(FLAGS):
    assert (FLAGS.name, FLAGS.count, FLAGS.fast, FLAGS.ratio) == ("none", 3, False, 0.5)
    assert (FLAGS.names, FLAGS.many, FLAGS.kind, FLAGS.derived) == (["a", "b"], ["one"], "a", "none/3")


def test_flags_and_conf_are_one(FLAGS, load):
    conf = load("oslo.config.cfg").CONF
    FLAGS.count = 8
    assert conf.count == conf["count"] == 8
    conf.set_override("name", "x")
    assert FLAGS.derived == "x/8"
    assert isinstance(FLAGS, type(conf))


def test_a_flag_object(FLAGS):
    flag = FLAGS["count"]
    assert (flag.value, flag.default, flag.present, flag.name, flag.help) == (3, 3, False, "count", "a number")
    flag.SetDefault("7")
    assert FLAGS.count == 7
    FLAGS.count = 9
    FLAGS["count"].SetDefault(1)
    assert FLAGS.count == 9
    FLAGS.Reset()
    assert FLAGS.count == 1


def test_set_default_of_the_shims_options(FLAGS):
    FLAGS["fake_rabbit"].SetDefault(True)
    FLAGS["rpc_backend"].SetDefault("nova.rpc.impl_fake")
    assert (FLAGS.fake_rabbit, FLAGS.rpc_backend) == (True, "nova.rpc.impl_fake")


def test_items_are_values_where_nothing_is_defined(flags, load):
    assert flags.FLAGS["report_interval"] == 10


@pytest.mark.parametrize(("era", "flag"), [("cactus", True), ("diablo", True), ("essex", False), ("folsom", False)])
def test_items_by_era(stand_in, era, flag):
    FLAGS = stand_in(era)("nova.flags").FLAGS
    assert hasattr(FLAGS["report_interval"], "SetDefault") is flag


def test_reset_forgets_what_was_set(FLAGS):
    FLAGS(["prog", "--count=4"])
    FLAGS.name = "x"
    FLAGS.Reset()
    assert (FLAGS.count, FLAGS.name, FLAGS.IsParsed()) == (3, "none", False)


def test_all_flags(FLAGS):
    values = FLAGS.FlagValuesDict()
    assert values["count"] == 3 and values["rabbit_host"] == "localhost"
    assert "count" in FLAGS and "nobodys" not in FLAGS and "count" in FLAGS.RegisteredFlags()


def test_an_unknown_flag(FLAGS):
    with pytest.raises(AttributeError):
        _ = FLAGS.nobodys
    with pytest.raises(AttributeError):
        FLAGS["nobodys"]
    assert FLAGS.get("nobodys", 5) == 5


@pytest.mark.parametrize(
    "argv",
    [
        ["--count=4", "--fast", "--name", "x y"],
        ["-count", "4", "--nofast", "--fast=true", "--name=x y"],
    ],
)
def test_the_command_line(FLAGS, argv):
    assert FLAGS(["/usr/bin/prog", *argv, "rest", "--", "--count=5"]) == ["/usr/bin/prog", "rest", "--count=5"]
    assert (FLAGS.count, FLAGS.fast, FLAGS.name, FLAGS.derived) == (4, True, "x y", "x y/4")


def test_a_flag_that_is_defined_later(FLAGS, flags):
    FLAGS(["prog", "--later=5", "--nosoon"])
    flags.DEFINE_integer("later", 1, "later")
    flags.DEFINE_bool("soon", True, "sooner")
    assert (FLAGS.later, FLAGS.soon) == (5, False)


def test_an_option_that_is_registered_later(FLAGS, load):
    cfg = load("nova.openstack.common.cfg")
    FLAGS(["prog", "--later=5"])
    FLAGS.register_cli_opt(cfg.IntOpt("later", default=1))
    assert FLAGS.later == 5


def test_a_flag_file(FLAGS, tmp_path):
    path = tmp_path / "nova.conf"
    path.write_text("# flags\n--count=6\n--nofast\n--name=from file\n--unknown_to_all=1\n")
    FLAGS(["prog", f"--flagfile={path}"])
    assert (FLAGS.count, FLAGS.fast, FLAGS.name) == (6, False, "from file")


def test_a_value_that_is_refused(FLAGS, flags):
    with pytest.raises(flags.IllegalFlagValue, match="count=many"):
        FLAGS(["prog", "--count=many"])


def test_the_same_flag_twice(FLAGS, flags):
    flags.DEFINE_integer("count", 11, "again")
    assert FLAGS.count == 11


def test_declare(FLAGS, flags):
    flags.DECLARE("report_interval", "nova.service_that_is_not_here")
    with pytest.raises(ImportError):
        flags.DECLARE("nobodys", "nova.service_that_is_not_here")
    with pytest.raises(flags.UnrecognizedFlag):
        flags.DECLARE("nobodys", "nova.utils")


def test_a_service_may_define_what_the_shim_has(FLAGS, flags):
    flags.DEFINE_integer("report_interval", 5, "seconds")
    assert FLAGS.report_interval == 5


def test_options_in_the_way_of_essex(flags, load):
    cfg = load("nova.openstack.common.cfg")
    FLAGS = flags.FLAGS
    FLAGS.register_opts([cfg.IntOpt("report_interval", default=3), cfg.StrOpt("mine", default="$host")])
    FLAGS.set_override("host", "h1")
    assert (FLAGS.report_interval, FLAGS.mine) == (3, "h1")
    with pytest.raises(cfg.DuplicateOptError):
        FLAGS.register_opt(cfg.IntOpt("mine"))


def test_parse_args_of_folsom(flags, tmp_path):
    path = tmp_path / "nova.conf"
    path.write_text("[DEFAULT]\nhost = h2\n")
    flags.parse_args(["prog", "--config-file", str(path), "--debug"])
    assert (flags.FLAGS.host, flags.FLAGS.debug) == ("h2", True)
