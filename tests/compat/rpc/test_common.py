"""nova.rpc.common: errors, failures on the wire, versions, envelopes, the log."""

from __future__ import annotations

import copy
import json
import logging
import pickle
import sys
import traceback
from typing import Any

import pytest

import compat.nova

OLD = ["cactus", "diablo", "essex"]
NEW = ["folsom", "grizzly", "havana"]


class Settings:
    """A configuration object of the program's own."""

    def __init__(self, *modules: str) -> None:
        self.allowed_rpc_exception_modules = list(modules)


class NotFound(Exception):
    """An exception that only takes keywords, as those of Nova."""

    def __init__(self, **kwargs: Any) -> None:
        self.kwargs = kwargs
        super().__init__("{thing} is not there".format(**kwargs))


class Positional(Exception):
    def __init__(self, first: Any, *, second: Any = None) -> None:
        self.kwargs = {"second": second}
        self.first = first
        super().__init__(first)


def raised(error: BaseException) -> Any:
    try:
        raise error
    except BaseException:
        return sys.exc_info()


def failure(common: Any, error: BaseException) -> Any:
    return json.loads(common.serialize_remote_exception(raised(error), log_failure=False))


# --- errors -------------------------------------------------------------------------------------


def test_remote_error_holds_all_three(at):
    for era in compat.nova.ERAS:
        error = at(era)("nova.rpc.common").RemoteError("ValueError", "42", ["line 1\n", "line 2\n"])
        assert (error.exc_type, int(error.value), error.traceback) == ("ValueError", 42, ["line 1\n", "line 2\n"])
        assert all(part in str(error) for part in ("ValueError", "42", "line 2"))


def test_roots_are_those_of_the_era(at):
    for era in compat.nova.ERAS:
        load = at(era)
        common, exception = load("nova.rpc.common"), load("nova.exception")
        for name in ("RemoteError", "Timeout", "InvalidRPCConnectionReuse"):
            cls = getattr(common, name)
            assert issubclass(cls, common.RPCException)
            assert issubclass(cls, exception.NovaException) == (era in OLD), era
            if era in OLD:
                assert issubclass(cls, exception.Error)


@pytest.mark.parametrize("attribute", ["message", "msg_fmt"])
def test_text_of_a_subclass(at, attribute, caplog):
    common = at("havana")("nova.rpc.common")
    cls = type("Full", (common.RPCException,), {attribute: "%(disk)s is full"})
    assert str(cls(disk="sda")) == "sda is full"
    assert str(cls("no space")) == "no space"
    assert cls(disk="sda").kwargs == {"disk": "sda"}
    assert str(cls()) == "%(disk)s is full"
    assert "no such values" in caplog.text


def test_own_texts_are_filled_in(at):
    common = at("havana")("nova.rpc.common")
    assert "1.7" in str(common.UnsupportedRpcVersion(version="1.7"))
    assert "9.0" in str(common.UnsupportedRpcEnvelopeVersion(version="9.0"))
    assert "2.2" in str(common.RpcVersionCapError(version_cap="2.2"))
    assert "abc" in str(common.DuplicateMessageError(msg_id="abc"))
    assert "%" not in str(common.InvalidRPCConnectionReuse())


def test_timeout_names_topic_and_method(at):
    common = at("havana")("nova.rpc.common")
    error = common.Timeout("60 seconds", "compute", "reboot")
    assert (error.info, error.topic, error.method) == ("60 seconds", "compute", "reboot")
    assert all(part in str(error) for part in ("60 seconds", "compute", "reboot"))
    assert "<unknown>" in str(common.Timeout(topic="compute"))
    assert str(common.Timeout("too late")) == "too late"
    assert "%" not in str(common.Timeout())


def test_errors_survive_copy_and_pickle(at):
    common = at("essex")("nova.rpc.common")
    for make in (copy.copy, copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))):
        error = make(common.RemoteError("ValueError", "42", ["line"]))
        assert (error.exc_type, error.value, error.traceback) == ("ValueError", "42", ["line"])
        assert make(common.Timeout(None, "compute", "reboot")).topic == "compute"


# --- what an exception brings along is bounded ----------------------------------------------------


def shared() -> Any:
    value: Any = ["x"]
    for _ in range(60):
        value = [value, value]
    return value


class Holds(Exception):
    def __init__(self, value: Any) -> None:
        self.kwargs = {"value": value}
        super().__init__(value, {"value": value})


@pytest.mark.parametrize("kind", [Holds, ValueError, KeyError])
def test_a_failure_of_nested_shared_lists_is_written_briefly(at, kind):
    for era in ("essex", "folsom", "havana"):
        common = at(era)("nova.rpc.common")
        failure = common.failure_of(raised(kind(shared())))
        assert len(json.dumps(failure)) < 200_000
        error = common.exception_from(Settings(), failure)
        assert error.exc_type == kind.__name__ and len(str(error)) < 200_000


@pytest.mark.parametrize(
    "failure",
    [
        "[" * 100_000,
        json.dumps({"class": "ValueError", "module": "exceptions", "args": [[[[]] * 1000] * 100]}),
        json.dumps({"class": "SyntaxError", "module": "exceptions", "args": ["m", ["f", 1, 1, "t", 1, 10**15]]}),
        json.dumps({"class": "ImportError", "module": "exceptions", "kwargs": {"name": "antigravity"}}),
        json.dumps({"class": ["ValueError"], "module": {"a": 1}, "tb": 7, "message": [1]}),
    ],
    ids=range(5),
)
def test_a_hostile_failure_makes_an_exception_that_can_be_printed(at, failure):
    common = at("havana")("nova.rpc.common")
    error = common.exception_from(Settings("exceptions"), failure)
    assert len("".join(traceback.format_exception(error))) < 2_000_000
    assert getattr(error, "name", None) is None


# --- client exceptions --------------------------------------------------------------------------


def test_client_exception_holds_the_inner_one(at):
    common = at("grizzly")("nova.rpc.common")

    @common.client_exceptions(KeyError, ValueError)
    def method(self: Any, text: str) -> int:
        """Its docstring."""
        return int(text)

    assert method.__doc__ == "Its docstring."
    assert method(None, "7") == 7
    with pytest.raises(common.ClientException) as caught:
        method(None, "seven")
    assert isinstance(caught.value._exc_info[1], ValueError)


def test_other_exceptions_pass(at):
    common = at("grizzly")("nova.rpc.common")
    with pytest.raises(TypeError):
        common.catch_client_exception([ValueError], int, None)
    # A subclass was not named.
    with pytest.raises(UnicodeDecodeError):
        common.catch_client_exception([ValueError], b"\xff".decode, "utf-8")


# --- failures on the wire -----------------------------------------------------------------------


@pytest.mark.parametrize("era", OLD)
def test_old_failures_are_triples(at, era, caplog):
    common = at(era)("nova.rpc.common")
    kind, value, lines = json.loads(json.dumps(common.failure_of(raised(ValueError(42)))))
    assert (kind, value) == ("ValueError", "42")
    assert "raise error" in "".join(lines)
    assert "ValueError" in caplog.text
    error = common.exception_from(None, [kind, value, lines])
    assert type(error) is common.RemoteError
    assert (error.exc_type, error.value, error.traceback) == ("ValueError", "42", lines)


@pytest.mark.parametrize("era", NEW)
def test_new_failures_are_json(at, era):
    common = at(era)("nova.rpc.common")
    text = common.failure_of(raised(NotFound(thing="disk")), log_failure=False)
    record = json.loads(text)
    assert record["class"] == "NotFound" and record["module"] == __name__
    assert record["message"] == "disk is not there"
    assert record["kwargs"] == {"thing": "disk"}
    assert record["args"] == ["disk is not there"]
    assert "raise error" in "".join(record["tb"])


@pytest.mark.parametrize("era", ["essex", "havana"])
def test_either_form_is_read_at_any_time(at, era):
    common = at(era)("nova.rpc.common")
    triple = common.exception_from(None, ["KeyError", "x", ["line"]])
    record = common.exception_from(Settings(), json.dumps({"class": "KeyError", "module": "os", "message": "x"}))
    for error in (triple, record):
        assert type(error) is common.RemoteError and (error.exc_type, error.value) == ("KeyError", "x")


def test_allowed_class_is_rebuilt_with_the_remote_text(at):
    common = at("folsom")("nova.rpc.common")
    text = common.serialize_remote_exception(raised(NotFound(thing="disk")), log_failure=False)
    error = common.deserialize_remote_exception(Settings(__name__), text)
    assert isinstance(error, NotFound)
    assert type(error).__name__ == "NotFound_Remote"
    assert error.kwargs == {"thing": "disk"}
    assert str(error).startswith("disk is not there\n")
    assert "raise error" in str(error)


def test_texts_of_two_rebuilt_exceptions_are_their_own(at):
    common = at("folsom")("nova.rpc.common")
    first, second = (
        common.deserialize_remote_exception(Settings(__name__), json.dumps(failure(common, NotFound(thing=thing))))
        for thing in ("disk", "port")
    )
    assert str(first).startswith("disk") and str(second).startswith("port")


def test_builtin_carries_the_text_in_its_args(at):
    common = at("grizzly")("nova.rpc.common")
    record = failure(common, ValueError("too small"))
    assert record["module"] == "exceptions"
    # The default list of Grizzly has "exceptions".
    error = common.deserialize_remote_exception(None, json.dumps(record))
    assert type(error) is ValueError
    assert error.args[0].startswith("too small\n") and "raise error" in error.args[0]


@pytest.mark.parametrize("module", ["exceptions", "builtins"])
def test_builtins_need_to_be_allowed(at, module):
    common = at("folsom")("nova.rpc.common")
    data = json.dumps({"class": "ValueError", "module": module, "message": "no", "tb": []})
    assert type(common.deserialize_remote_exception(None, data)) is common.RemoteError
    assert type(common.deserialize_remote_exception(Settings("exceptions"), data)) is ValueError


@pytest.mark.parametrize(
    "record",
    [
        pytest.param({"class": "system", "module": "os", "kwargs": {"command": "true"}}, id="module not allowed"),
        pytest.param({"class": "Nothing", "module": __name__}, id="no such class"),
        pytest.param({"class": "Settings", "module": __name__}, id="no exception"),
        pytest.param({"class": "raised", "module": __name__}, id="no class"),
        pytest.param({"class": "Positional", "module": __name__}, id="constructor refuses"),
        pytest.param({"class": "KeyboardInterrupt", "module": "exceptions"}, id="not an Exception"),
        pytest.param({"class": "StopIteration", "module": "exceptions"}, id="ends a loop"),
        pytest.param({"class": None, "module": None}, id="empty"),
    ],
)
def test_what_is_not_rebuilt_is_a_remote_error(at, record):
    common = at("folsom")("nova.rpc.common")
    data = json.dumps(record | {"message": "text", "tb": ["line"]})
    error = common.deserialize_remote_exception(Settings(__name__, "exceptions"), data)
    assert type(error) is common.RemoteError
    assert (error.exc_type, error.value, error.traceback) == (record["class"], "text", ["line"])


@pytest.mark.parametrize("data", ["not json", "[]", "7", None])
def test_unreadable_failure_is_a_remote_error(at, data):
    common = at("folsom")("nova.rpc.common")
    assert type(common.deserialize_remote_exception(Settings(), data)) is common.RemoteError


def test_only_havana_passes_args(at):
    for era, built in (("grizzly", False), ("havana", True)):
        common = at(era)("nova.rpc.common")
        data = json.dumps(failure(common, Positional("one", second=2)))
        error = common.deserialize_remote_exception(Settings(__name__), data)
        assert isinstance(error, Positional) == built
    assert (error.first, error.kwargs) == ("one", {"second": 2})


def test_suffix_is_stripped_when_sent_on(at):
    common = at("havana")("nova.rpc.common")
    data = json.dumps(failure(common, Positional("one")))
    again = failure(common, common.deserialize_remote_exception(Settings(__name__), data))
    assert (again["class"], again["module"]) == ("Positional", __name__)


def test_client_exception_is_sent_as_the_inner_one_and_not_logged(at, caplog):
    for era, name in (("essex", lambda sent: sent[0]), ("grizzly", lambda sent: json.loads(sent)["class"])):
        common = at(era)("nova.rpc.common")
        try:
            common.catch_client_exception([ValueError], int, "seven")
        except common.ClientException:
            assert name(common.failure_of(sys.exc_info())) == "ValueError"
    assert caplog.records == []


def test_failures_are_logged_unless_told_not_to(at, caplog):
    common = at("folsom")("nova.rpc.common")
    common.failure_of(raised(ValueError("silent")), log_failure=False)
    assert caplog.records == []
    common.failure_of(raised(ValueError("loud")))
    assert {record.levelno for record in caplog.records} == {logging.ERROR}
    assert "loud" in caplog.text and "raise error" in caplog.text


def test_any_exception_can_be_sent(at):
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    common = at("folsom")("nova.rpc.common")
    assert failure(common, Broken())["class"] == "Broken"
    record = failure(common, ValueError(object()))
    assert "object" in record["args"][0]
    assert failure(common, NotFound(thing={1, 2}))["kwargs"]["thing"] == [1, 2]
    assert "object" in failure(common, NotFound(thing=object()))["kwargs"]["thing"]


# --- versions and envelopes ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("implemented", "wanted", "fits"),
    [
        ("1.0", "1.0", True),
        ("1.5", "1.3", True),
        ("1.3", "1.5", False),
        ("1.10", "1.9", True),
        ("2.0", "1.0", False),
        ("1.0", "2.0", False),
        ("1.5.2", "1.5.1", True),
        ("1.5.1", "1.5.2", False),
        ("1.5", "1.5.1", False),
        ("1.6", "1.5.1", True),
    ],
)
def test_versions(at, implemented, wanted, fits):
    assert at("havana")("nova.rpc.common").version_is_compatible(implemented, wanted) is fits


def test_only_havana_sends_envelopes(at):
    msg = {"method": "echo", "args": {"value": 1}}
    for era in compat.nova.ERAS:
        common = at(era)("nova.rpc.common")
        wrapped = {"oslo.version": "2.0", "oslo.message": json.dumps(msg)}
        assert common.serialize_msg(msg) == (wrapped if era == "havana" else msg)
        assert common.serialize_msg(msg, force_envelope=True) == wrapped
        assert common.deserialize_msg(wrapped) == common.deserialize_msg(msg) == msg


DEEP = ["[" * 101 + "]" * 101, '{"a":' * 101 + "1" + "}" * 101, "[" * 100_000 + "]" * 100_000, "[" * 100_000]


@pytest.mark.parametrize("text", DEEP, ids=["arrays", "objects", "very deep", "never closed"])
def test_json_within_a_message_is_held_to_the_depth_of_the_message_itself(at, text):
    common = at("havana")("nova.rpc.common")
    with pytest.raises(ValueError, match="nested more than 100 levels"):
        common.deserialize_msg({"oslo.version": "2.0", "oslo.message": text})
    # Of an exception the caller gets what there is: its text.
    error = common.deserialize_remote_exception(None, text)
    assert type(error) is common.RemoteError and error.value == text
    just = "[" * 100 + "]" * 100
    assert json.dumps(common.deserialize_msg({"oslo.version": "2.0", "oslo.message": just})) == just
    brackets = json.dumps("[" * 1000)
    assert common.deserialize_msg({"oslo.version": "2.0", "oslo.message": brackets}) == "[" * 1000


def test_a_program_of_grizzly_may_want_envelopes(at):
    common = at("grizzly")("nova.rpc.common")
    common._SEND_RPC_ENVELOPE = True
    assert common.serialize_msg({})[common._VERSION_KEY] == common._RPC_ENVELOPE_VERSION


@pytest.mark.parametrize("raw", [1, [], {}, "text", None, {"oslo.version": "2.0"}])
def test_what_is_no_envelope_is_left_alone(at, raw):
    assert at("havana")("nova.rpc.common").deserialize_msg(raw) == raw


@pytest.mark.parametrize("version", ["1.0", "3.0", "2.1", "nonsense", None])
def test_other_envelope_versions_are_refused(at, version):
    common = at("havana")("nova.rpc.common")
    with pytest.raises(common.UnsupportedRpcEnvelopeVersion):
        common.deserialize_msg({"oslo.version": version, "oslo.message": "{}"})


# --- the log, connections -----------------------------------------------------------------------


def test_secrets_are_masked_in_a_copy(at):
    data = {
        "_context_auth_token": "secret",
        "auth_token": "secret",
        "method": "set_admin_password",
        "args": {"new_pass": "secret", "message": [{"admin_password": "secret", "Root_Password_2": "secret", "id": 7}]},
    }
    before = copy.deepcopy(data)
    logged: list[Any] = []
    at("havana")("nova.rpc.common")._safe_log(lambda msg, data: logged.append((msg, data)), "got %s", data)
    [(msg, shown)] = logged
    assert msg == "got %s" and data == before
    assert "secret" not in str(shown)
    assert shown["method"] == "set_admin_password"
    assert shown["args"]["message"][0]["id"] == 7
    assert shown["auth_token"] == "<SANITIZED>"


def test_connection_closes_when_left(at):
    common = at("essex")("nova.rpc.common")

    class Once(common.Connection):  # type: ignore[misc, name-defined]
        closed = 0

        def close(self) -> None:
            self.closed += 1

    with Once() as connection:
        assert connection.closed == 0
    assert connection.closed == 1
    for verb, args in (
        ("create_consumer", ("topic", None)),
        ("create_worker", ("topic", None, "pool")),
        ("join_consumer_pool", (None, "pool", "topic", "exchange")),
        ("consume_in_thread", ()),
    ):
        with pytest.raises(NotImplementedError):
            getattr(connection, verb)(*args)
