from __future__ import annotations

import pickle
from typing import Any

import pytest


@pytest.fixture
def exception(stand_in) -> Any:
    return stand_in("folsom")("nova.exception")


class Notifier:
    ERROR = "ERROR"

    def __init__(self) -> None:
        self.sent: list[tuple[Any, ...]] = []

    def notify(self, *args: Any) -> None:
        self.sent.append(args)


def test_the_text_has_the_keywords(exception):
    error = exception.InstanceNotFound(instance_id=7)
    assert str(error) == "Instance 7 could not be found."
    assert (error.code, error.kwargs) == (404, {"instance_id": 7, "code": 404})
    assert isinstance(error, exception.NotFound) and isinstance(error, exception.NovaException)
    assert error.format_message() == str(error)


@pytest.mark.parametrize("attribute", ["message", "msg_fmt"])
def test_exceptions_of_a_program(exception, attribute):
    own = type("Own", (exception.NovaException,), {attribute: "no %(thing)s", "code": 418})
    assert str(own(thing="tea")) == "no tea"
    assert str(own("said otherwise")) == "said otherwise"
    assert own(thing="tea", code=1).kwargs["code"] == 1


def test_a_text_that_does_not_fit(exception, load_flags):
    assert str(exception.InstanceNotFound(wrong=1)) == "Instance %(instance_id)s could not be found."
    load_flags().set_override("fatal_exception_format_errors", True)
    with pytest.raises(KeyError):
        exception.InstanceNotFound(wrong=1)


@pytest.fixture
def load_flags():
    def load() -> Any:
        import importlib

        return importlib.import_module("nova.flags").FLAGS

    return load


def test_every_exception_of_the_table(exception):
    made = [
        each
        for each in vars(exception).values()
        if isinstance(each, type) and issubclass(each, exception.NovaException)
    ]
    assert len(made) > 130
    for each in made:
        assert each.__module__ == "nova.exception"
        assert str(each("x")) == "x"
        assert getattr(exception, each.__name__) is each


@pytest.mark.parametrize(
    "name",
    [
        "Error",
        "ApiError",
        "NovaException",
        "NotFound",
        "Invalid",
        "Duplicate",
        "NotAuthorized",
        "AdminRequired",
        "InstanceNotFound",
        "VolumeNotFound",
        "ComputeHostNotFound",
        "HostNotFound",
        "ServiceNotFound",
        "NoValidHost",
        "QuotaError",
        "InstanceInvalidState",
        "ProcessExecutionError",
        "DBError",
        "ConfigNotFound",
        "MalformedRequestBody",
        "KeyPairNotFound",
        "KeypairNotFound",
        "FixedIpNotFoundForInstance",
    ],
)
def test_names_that_services_use(exception, name):
    assert issubclass(getattr(exception, name), Exception)


def test_an_unknown_name(exception):
    with pytest.raises(AttributeError, match="NobodysError"):
        _ = exception.NobodysError
    assert not hasattr(exception, "NobodysError")


def test_older_exceptions(exception):
    assert str(exception.Error("text")) == "text"
    error = exception.ApiError("text", 404)
    assert (str(error), error.msg, error.code) == ("404: text", "text", 404)
    assert str(pickle.loads(pickle.dumps(exception.Error("text")))) == "text"


def test_a_failed_program(exception):
    error = exception.ProcessExecutionError("out", "err", 3, "cmd -x")
    assert (error.stdout, error.stderr, error.exit_code, error.cmd) == ("out", "err", 3, "cmd -x")
    assert "Command: cmd -x\nExit code: 3" in str(error)


def test_what_a_method_raises_is_notified(exception):
    to = Notifier()

    @exception.wrap_exception(to, "compute.h1", level="CRITICAL")
    def run(self: Any, context: Any, name: str) -> None:
        raise ValueError(name)

    with pytest.raises(ValueError, match="x"):
        run(None, "ctxt", name="x")
    [(context, publisher, event, level, payload)] = to.sent
    assert (context, publisher, event, level) == ("ctxt", "compute.h1", "run", "CRITICAL")
    assert payload["args"] == {"name": "x"} and isinstance(payload["exception"], ValueError)


def test_to_essex_there_was_no_context(stand_in):
    exception, to = stand_in("essex")("nova.exception"), Notifier()

    @exception.wrap_exception(notifier=to, publisher_id="p", event_type="e")
    def run(*args: Any) -> None:
        raise ValueError("x")

    with pytest.raises(ValueError, match="x"):
        run(1, 2)
    assert [sent[:3] for sent in to.sent] == [("p", "e", "ERROR")]
    assert to.sent[0][3]["args"] == (1, 2)


def test_a_notifier_that_fails_hides_nothing(exception):
    class Broken(Notifier):
        def notify(self, *args: Any) -> None:
            raise LookupError

    with pytest.raises(ZeroDivisionError):
        exception.wrap_exception(Broken())(lambda: 1 // 0)()


def test_cactus_makes_errors_of_all(stand_in):
    exception = stand_in("cactus")("nova.exception")

    @exception.wrap_exception
    def run(value: Any) -> Any:
        return 1 // value

    assert run(1) == 1 and run.__name__ == "run"
    with pytest.raises(exception.Error, match="division"):
        run(0)


def test_errors_of_the_database(exception):
    SqlError = type("SqlError", (Exception,), {"__module__": "sqlalchemy.exc"})

    @exception.wrap_db_error
    def run(error: Exception) -> None:
        raise error

    with pytest.raises(exception.DBError) as caught:
        run(SqlError("locked"))
    assert str(caught.value) == "locked" and isinstance(caught.value.inner_exception, SqlError)
    with pytest.raises(exception.InvalidUnicodeParameter):
        run(UnicodeEncodeError("ascii", "x", 0, 1, "no"))
    with pytest.raises(LookupError):
        run(LookupError())


def test_an_answer_of_the_web_api_needs_nothing(exception):
    assert str(exception.ConvertedException()) == ""
    error = exception.ConvertedException(404, "Not found", explanation="it is gone")
    assert (str(error), error.code, error.title, error.explanation) == ("it is gone", 404, "Not found", "it is gone")
