"""The client in JavaScript, and the page of examples/web, in a real browser."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import pytest
from gevent import subprocess

from rpcmq.testing import eventually
from rpcmq.testing.orphans import ending_with_this_process
from tests.gateway.chromium import chromium
from tests.gateway.conftest import Demo, Start
from tests.gateway.programs import SCRIPTS, needs_chromium

pytestmark = [pytest.mark.integration, needs_chromium, pytest.mark.timeout(240)]

ROOT = Path(__file__).parents[2]


def test_the_suite_passes_in_a_browser(start: Start, token: str, demo: Demo) -> None:
    gateway = start(limits__messages_per_second=0, pages__folder=str(SCRIPTS))
    with chromium(f"{gateway.url}/blank.html") as page:
        lines = page.run(
            f"""Promise.all([import("/suite.mjs"), import("/rpcmq.js")])
                .then(([{{ run }}, m]) => run(m, {{ token: {token!r} }}))"""
        )
    assert [line for line in lines if not line.startswith("ok ")] == [] and len(lines) >= 15
    eventually(lambda: gateway.statistics()["connections"] == 0)
    assert gateway.statistics()["messages"].get("unusable", 0) == 0


def test_a_page_of_another_origin_is_refused_unless_it_is_allowed(start: Start, token: str, demo: Demo) -> None:
    elsewhere = start(pages__folder=str(SCRIPTS))
    script = """import("/rpcmq.js").then(async ({{ Client }}) => {{
        const client = new Client({{ url: {url!r}, token: {token!r} }});
        return client.call("demo", "echo", {{}}, {{ timeout: {seconds} }})
            .then(() => "answered", (error) => error.name).finally(() => client.close());
    }})"""
    refuses, allows = start(), start(access__origins=[elsewhere.url])
    with chromium(f"{elsewhere.url}/blank.html") as page:
        assert page.run(script.format(url=refuses.websocket_url, token=token, seconds=0.01)) == "GatewayUnreachable"
        assert page.run(script.format(url=allows.websocket_url, token=token, seconds=20)) == "answered"
    assert refuses.statistics()["refused"]["HTTP 403"] >= 1 and allows.statistics()["opened"] == 1


def test_the_example_calls_streams_watches_and_shows_errors() -> None:
    command = [sys.executable, "-m", "examples.web", "--bind", "127.0.0.1:0"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, preexec_fn=ending_with_this_process())
    assert process.stdout is not None
    try:
        url = process.stdout.readline().decode().split()[1]
        with chromium(url) as page:

            def text(name: str) -> str:
                return str(page.run(f"document.getElementById({name!r})?.textContent ?? ''"))

            def click(selector: str) -> None:
                page.run(f"document.querySelector({selector!r}).click()")

            def shows(error: str) -> bool:
                return text("error").startswith(error)

            eventually(lambda: text("state") == "connected as page")
            assert page.run("location.hash") == ""
            click("#call")
            eventually(lambda: "(decimal)" in text("answer"))
            for button, error in {
                "raises": "RemoteError", "late": "CallTimeout", "nobody": "NoConsumer", "denied": "AccessDenied",
                "abort": "TimeoutError",
            }.items():  # fmt: skip
                click(f"[data-error={button}]")
                eventually(partial(shows, error))
            click("#check")
            eventually(lambda: text("blocks") == "block 40 of 40")
            eventually(lambda: int(text("counts").split()[0]) > 5)
            assert text("counts").endswith(" 0 lost") and text("nodes").count("node-") == 3
    finally:
        process.terminate()
        process.wait(20)
        process.stdout.close()
