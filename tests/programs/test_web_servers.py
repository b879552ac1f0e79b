"""Web applications that call and cast, in the servers that run them."""

from __future__ import annotations

import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rpcmq.testing import eventually
from tests.programs.conftest import Cloud
from tests.programs.groups import CHECKOUT, PROGRAMS, Group
from tests.programs.web import Server, Site

ACCESS = r'127\.0\.0\.1 - - \[.*\] "(GET|POST) /instances'
FLASK_APP = CHECKOUT / "examples" / "flask_app.py"
DJANGO_APP = PROGRAMS / "django_app.py"


def gunicorn(*options: str, workers: int = 1, others: int = 0) -> Server:
    return Server(
        ["-m", "gunicorn", "--bind", "127.0.0.1:0", "--no-control-socket", *options, "examples.flask_app:app"],
        says=r"Listening at: http://127\.0\.0\.1:(\d+)",
        output=[r"\[.*\] \[\d+\] \[INFO\] "],
        workers=workers,
        others=others,
    )


def preloaded(*options: str, workers: int = 1) -> Server:
    """Gunicorn whose master calls before it forks, and so has a connection of its own."""
    return gunicorn("--preload", "--config", str(PROGRAMS / "call_in_master.py"), *options, workers=workers, others=1)


def flask(app: str, *options: str) -> Server:
    return Server(
        ["-m", "flask", "--app", app, "run", "--port", "0", *options],
        says=r"Running on http://127\.0\.0\.1:(\d+)",
        says_again=r"Debugger PIN",
        output=[
            r" \* Serving Flask app", r" \* Debug mode: ",
            "WARNING: This is a development server", r" \* Running on http",
            r"Press CTRL\+C to quit", r" \* Restarting with", r" \* Debugger ", r" \* Detected change in",
            ACCESS,
        ],
        stops_by=signal.SIGINT,
    )  # fmt: skip


def django(app: str, *options: str) -> Server:
    says = r"development server at http://127\.0\.0\.1:(\d+)"
    return Server(
        [app, "runserver", "127.0.0.1:0", *options],
        says=says,
        says_again=says,
        output=[
            "Performing system checks", "Watching for file changes", "System check identified no issues",
            "Django version", "Starting development server", "Quit the server with",
            "WARNING: This is a development server", "For more information", r"\[.*\] \"(GET|POST) /instances",
            r"\w+ \d+, \d+ - ", r".* changed, reloading\.",
            "Not Found: /instances/missing",
        ],
        stops_by=signal.SIGINT,
    )  # fmt: skip


def uvicorn(*options: str, workers: int = 1, ends_with: int = 0) -> Server:
    return Server(
        ["-m", "uvicorn", "--port", "0", *options, "examples.fastapi_app:app"],
        says=r"Uvicorn running on http://127\.0\.0\.1:(\d+)",
        output=["INFO: "],
        workers=workers,
        ends_with=ends_with,
    )


GTHREAD = ("--worker-class", "gthread", "--threads", "8")
GEVENT = ("--worker-class", "gevent")
SERVERS = {
    "gunicorn-sync": gunicorn("--workers", "2", workers=2),
    "gunicorn-gthread": gunicorn(*GTHREAD),
    "gunicorn-gevent": gunicorn(*GEVENT),
    "gunicorn-preload": preloaded(*GTHREAD, "--workers", "2", workers=2),
    "gunicorn-gevent-preload": preloaded(*GEVENT),
    "flask": flask("examples.flask_app"),
    # It ends itself by the signal that it got, when all is done.
    "uvicorn": uvicorn(ends_with=-signal.SIGTERM),
    "uvicorn-workers": uvicorn("--workers", "2", workers=2),
    "django": django(str(DJANGO_APP), "--noreload"),
}


@pytest.fixture
def site(cloud: Cloud, request: pytest.FixtureRequest) -> Iterator[Site]:
    server = SERVERS[request.param]
    environment = {**cloud.environment, "PYTHONPATH": str(CHECKOUT)}
    with Group([sys.executable, *server.command], environment, request.param) as program:
        yield Site(server, program)


QUICK = ("flask", "gunicorn-gthread")


@pytest.mark.parametrize(
    "site", [name if name in QUICK else pytest.param(name, marks=pytest.mark.long) for name in SERVERS], indirect=True
)
def test_a_web_application(cloud, site):
    # Calls answer, also many at once, and streams, and exceptions arrive as themselves.
    answers = site.all([f"/instances/i-{n}" for n in range(60)])
    assert answers == [(200, {"id": f"i-{n}", "state": f"state of i-{n}"}) for n in range(60)], site.program.said()
    assert site.get("/instances") == (200, ["i-1", "i-2", "i-3"])
    assert site.get("/instances/missing") == (404, {"error": "there is no instance missing"})
    # One connection for each process, whatever its threads. The system decides which of them takes a request.
    processes = site.server.workers + site.server.others
    eventually(lambda: site.get("/instances/i-0") and len(cloud.processes()) >= processes, 40)
    links = cloud.expect_links(processes)
    # Casts are run while nobody asks for anything more.
    names = [f"i-{n}" for n in range(40)]
    assert {status for status, _ in site.all([f"/instances/{name}/reboot" for name in names], "POST")} == {202}
    cloud.expect_casts(names)
    # The connections have stayed.
    assert {link["identity"] for link in cloud.processes()} == {link["identity"] for link in links}
    # Casts of the last moment before the end are not lost.
    assert site.post("/instances/last/reboot")[0] == 202
    site.stop()
    cloud.expect_casts(["last"])
    cloud.expect_nobody()


@pytest.mark.long
@pytest.mark.parametrize(
    ("server", "source"),
    [(flask("app", "--debug"), FLASK_APP), (django("app.py"), DJANGO_APP)],
    ids=["flask", "django"],
)
def test_a_development_server_that_reloads(cloud, tmp_path, server, source):
    app = Path(shutil.copy(source, tmp_path / "app.py"))
    # The program changes within a second: its bytecode would be taken for that of the new one.
    environment = {**cloud.environment, "PYTHONPATH": f"{CHECKOUT}:{tmp_path}", "PYTHONDONTWRITEBYTECODE": "1"}
    with Group([sys.executable, *server.command], environment, "reloader", tmp_path) as program:
        site = Site(server, program)
        (link,) = cloud.expect_links(1)
        assert site.post("/instances/before/reboot")[0] == 202
        site.reload(lambda: app.write_text(app.read_text().replace('"rebooting"', '"changed"')))
        assert site.post("/instances/after/reboot") == (202, {"id": "after", "state": "changed"})
        cloud.expect_casts(["before", "after"])
        (reloaded,) = cloud.expect_links(1)
        assert reloaded["identity"] != link["identity"]
        site.stop()
        cloud.expect_nobody()
