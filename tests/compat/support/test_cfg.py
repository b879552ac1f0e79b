from __future__ import annotations

import io
import logging
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def cfg(load) -> Any:
    return load("nova.openstack.common.cfg")


@pytest.fixture
def conf(cfg) -> Any:
    conf = cfg.ConfigOpts()
    conf.register_cli_opts(
        [
            cfg.StrOpt("my-name", default="none", deprecated_name="old-name", deprecated_group="old"),
            cfg.IntOpt("count", short="c", default=1),
            cfg.BoolOpt("fast", default=False),
        ]
    )
    conf.register_opts(
        [
            cfg.FloatOpt("ratio", default=0.5),
            cfg.ListOpt("names", default=["$my_name", "b"]),
            cfg.DictOpt("pairs", default={}),
            cfg.MultiStrOpt("many", default=[]),
            cfg.StrOpt("derived", default="$my_name-$count/$nobody $$"),
        ]
    )
    conf.register_opt(cfg.IntOpt("port", default=80), group="web")
    return conf


@pytest.fixture
def write(tmp_path: Path):
    def write(text: str, name: str = "nova.conf") -> str:
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return write


# --- registering --------------------------------------------------------------------------------


def test_one_class_under_every_name(load, cfg):
    for name in ("nova.common.cfg", "oslo.config.cfg", "oslo_config.cfg"):
        assert load(name) is cfg


def test_the_same_option_twice_is_one(cfg, conf):
    assert conf.register_opt(cfg.FloatOpt("ratio", default=0.5)) is False


def test_another_option_of_the_name_is_refused(cfg, conf):
    with pytest.raises(cfg.DuplicateOptError):
        conf.register_opt(cfg.StrOpt("ratio"))
    assert conf.ratio == 0.5


def test_a_soft_option_gives_way_and_keeps_what_was_set(cfg, conf):
    conf.register_opt(cfg.IntOpt("pool", default=1), soft=True)
    conf.register_opt(cfg.IntOpt("pool", default=2))
    assert conf.pool == 2
    conf.register_opt(cfg.IntOpt("other", default=1), soft=True)
    conf.set_override("other", 7)
    conf.register_opt(cfg.IntOpt("other", default=2))
    assert conf.other == 7


def test_the_command_line_is_read_once(cfg, conf):
    conf([])
    with pytest.raises(cfg.ArgsAlreadyParsedError):
        conf.register_cli_opt(cfg.StrOpt("late"))
    with pytest.raises(cfg.ArgsAlreadyParsedError):
        conf.unregister_opt(cfg.StrOpt("ratio"))
    conf.reset()
    conf.unregister_opt(cfg.StrOpt("ratio"))
    assert "ratio" not in conf


def test_import_opt(cfg, load):
    cfg.CONF.import_opt("my_ip", "nova.flags")
    with pytest.raises(cfg.NoSuchOptError):
        cfg.CONF.import_opt("nobodys", "nova.flags")
    with pytest.raises(cfg.NoSuchGroupError):
        cfg.CONF.import_group("nobodys", "nova.flags")


# --- reading ------------------------------------------------------------------------------------


def test_every_way_to_read(cfg, conf):
    assert (conf.ratio, conf["ratio"], conf.get("ratio"), conf.web.port, conf["web"]["port"]) == (0.5,) * 3 + (80,) * 2
    assert "ratio" in conf and "web" in conf and "nobodys" not in conf
    assert {"ratio", "web"} <= set(conf) and len(conf) == len(list(conf))
    assert dict(conf.iteritems())["count"] == 1
    assert list(conf.web) == ["port"] and "port" in conf.web
    assert conf.get("nobodys") is None and conf.get("nobodys", 3) == 3


def test_an_unknown_option_is_an_attribute_error_too(cfg, conf):
    with pytest.raises(cfg.NoSuchOptError, match="nobodys"):
        _ = conf.nobodys
    assert not hasattr(conf, "nobodys") and not hasattr(conf.web, "nobodys")


def test_names_in_texts(conf):
    assert conf.derived == "none-1/$nobody $"
    assert conf.names == ["none", "b"]
    conf.set_override("my_name", "x")
    assert (conf.derived, conf.names) == ("x-1/$nobody $", ["x", "b"])


def test_a_group_stands_for_no_text(cfg, conf):
    conf.set_override("derived", "$web")
    with pytest.raises(cfg.TemplateSubstitutionError):
        _ = conf.derived


def test_the_order_of_sources(conf, write):
    path = write("[DEFAULT]\ncount = 3\n")
    conf.set_default("count", 2)
    assert conf.count == 2
    conf(["--config-file", path])
    assert conf.count == 3
    conf(["--config-file", path, "--count", "4"])
    assert conf.count == 4
    conf.set_override("count", 5)
    assert conf.count == 5
    conf.clear_override("count")
    assert conf.count == 4
    conf.reset()
    assert conf.count == 1


def test_defaults_and_overrides_in_a_group(conf):
    conf.set_default("port", 81, group="web")
    conf.set_override("port", 82, "web")
    assert conf.web.port == 82
    conf.clear_override("port", "web")
    assert conf.web.port == 81
    conf.clear_default("port", "web")
    assert conf.web.port == 80


def test_assigning_overrides(conf):
    conf.count = 9
    assert conf.count == conf["count"] == 9


# --- files --------------------------------------------------------------------------------------


def test_a_file(conf, write):
    path = write(
        "# a comment\n[DEFAULT]\nmy_name: 'quoted'\nratio=2.5\nnames = a, b,\n  c\npairs = k:v, l:w:x\n"
        "many = one\nmany = two\nfast = Yes\n\n; another\n[web]\nport = 8080\nunknown = 1\n"
    )
    assert conf(["--config-file", path]) == []
    assert (conf.my_name, conf.ratio, conf.names, conf.fast) == ("quoted", 2.5, ["a", "b", "c"], True)
    assert (conf.pairs, conf.many, conf.web.port) == ({"k": "v", "l": "w:x"}, ["one", "two"], 8080)


def test_a_later_file_goes_first(conf, write):
    first, second = write("[DEFAULT]\ncount=1\nratio=1\n", "a"), write("[DEFAULT]\ncount=2\n", "b")
    conf(["--config-file", first, "--config-file", second])
    assert (conf.count, conf.ratio) == (2, 1.0)


def test_a_directory_of_files(conf, cfg, tmp_path, write):
    write("[DEFAULT]\ncount=7\n", "x.conf")
    conf(["--config-dir", str(tmp_path)])
    assert conf.count == 7
    with pytest.raises(cfg.ConfigDirNotFoundError):
        conf(["--config-dir", str(tmp_path / "nowhere")])


def test_default_files(conf, write):
    conf([], default_config_files=[write("[DEFAULT]\ncount=7\n")])
    assert conf.count == 7
    assert conf.find_file("nova.conf") == conf.config_file[0]


def test_an_old_name_in_another_group(conf, write):
    conf(["--config-file", write("[old]\nold_name = x\n")])
    assert conf.my_name == "x"


def test_a_flag_file_is_understood(conf, write):
    conf(["--config-file", write("--count=5\n--fast\n")])
    assert (conf.count, conf.fast) == (5, True)


@pytest.mark.parametrize(
    ("text", "said"), [("count = 1\n", "no section"), ("[DEFAULT]\nx\n", "no ':'"), ("[\n", "invalid")]
)
def test_a_malformed_file(conf, cfg, write, text, said):
    path = write(text)
    with pytest.raises(cfg.ConfigFileParseError, match=said) as caught:
        conf(["--config-file", path])
    assert path in str(caught.value)


def test_a_missing_file(conf, cfg, tmp_path):
    with pytest.raises(cfg.ConfigFilesNotFoundError, match=r"nowhere\.conf"):
        conf(["--config-file", str(tmp_path / "nowhere.conf")])


def test_a_wrong_value(conf, cfg, write):
    with pytest.raises(cfg.ConfigFileValueError, match=r"DEFAULT\.count.*many"):
        conf(["--config-file", write("[DEFAULT]\ncount = many\n")])


def test_a_required_option(conf, cfg):
    conf.register_opt(cfg.StrOpt("needed", required=True))
    with pytest.raises(cfg.RequiredOptError, match="needed"):
        conf([])


# --- command line -------------------------------------------------------------------------------


def test_the_command_line(conf):
    assert conf(["rest", "--my_name=x", "-c", "3", "--fast", "more"]) == ["rest", "more"]
    assert (conf.my_name, conf.count, conf.fast) == ("x", 3, True)
    conf(["--nofast"])
    assert conf.fast is False


def test_nothing_after_the_first_argument(conf):
    conf.disable_interspersed_args()
    assert conf(["--count", "2", "run", "--fast"]) == ["run", "--fast"]
    assert (conf.count, conf.fast) == (2, False)


@pytest.mark.parametrize("args", [["--unknown"], ["--count", "many"]])
def test_a_wrong_command_line_ends_the_program(conf, args, capsys):
    with pytest.raises(SystemExit) as caught:
        conf(args)
    assert caught.value.code == 2
    assert "error:" in capsys.readouterr().err


def test_a_group_on_the_command_line(conf, cfg):
    conf.register_cli_opt(cfg.BoolOpt("secure"), group="web")
    conf(["--web-secure"])
    assert conf.web.secure is True
    conf(["--web-nosecure"])
    assert conf.web.secure is False


def test_subcommands(conf, cfg):
    def add(subparsers: Any) -> None:
        subparsers.add_parser("sync").add_argument("version")

    conf.register_cli_opt(cfg.SubCommandOpt("command", handler=add))
    conf(["--count", "3", "sync", "12"])
    assert (conf.command, conf.version, conf.count) == ("sync", "12", 3)


def test_choices(conf, cfg):
    conf.register_opt(cfg.StrOpt("kind", choices=["a", "b"]))
    conf.register_cli_opt(cfg.StrOpt("mode", choices=["a", "b"]))
    with pytest.raises(SystemExit):
        conf(["--mode", "c"])


def test_help_and_secrets(conf, cfg, caplog):
    conf.register_opt(cfg.StrOpt("password", default="hidden", secret=True))
    out = io.StringIO()
    conf.print_help(out)
    assert "--my-name" in out.getvalue()
    with caplog.at_level(logging.DEBUG):
        conf.log_opt_values(logging.getLogger("x"), logging.DEBUG)
    assert "ratio" in caplog.text and "hidden" not in caplog.text


def test_the_common_options_of_essex(cfg):
    conf = cfg.CommonConfigOpts()
    assert conf(["--debug", "--log_file", "x.log"]) == []
    assert (conf.debug, conf.verbose, conf.log_file) == (True, False, "x.log")


@pytest.mark.parametrize(("era", "value"), [("essex", 1), ("folsom", None)])
def test_an_override_of_none(stand_in, era, value):
    """To Essex, that was how one is undone."""
    cfg = stand_in(era)("nova.openstack.common.cfg")
    conf = cfg.ConfigOpts()
    conf.register_opt(cfg.IntOpt("count", default=1))
    conf.set_override("count", 2)
    conf.set_override("count", None)
    assert conf.count == value
