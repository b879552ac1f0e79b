"""TLS, and a certificate that is exchanged while the gateway serves."""

from __future__ import annotations

import ssl as plain_ssl
from pathlib import Path
from typing import Any

import pytest
from gevent import ssl, subprocess

from rpcmq.errors import ConfigError
from rpcmq.gateway.tls import Certificate
from rpcmq.testing import eventually
from tests.gateway.browsers import browser, get
from tests.gateway.conftest import Demo, Start, address_of

pytestmark = pytest.mark.integration


def make(folder: Path, name: str) -> tuple[str, str]:
    """A certificate for this machine that calls itself ``name``."""
    certificate, key = str(folder / "cert.pem"), str(folder / "key.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", certificate],
        check=True, capture_output=True, timeout=30,
    )  # fmt: skip
    return certificate, key


def wrapped(sock: Any) -> Any:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = plain_ssl.CERT_NONE
    return context.wrap_socket(sock, server_hostname="localhost")


def name_of(address: tuple[str, int]) -> bytes:
    """The certificate that is shown."""
    with browser(address, wrap=wrapped) as page:
        found: bytes = page.socket.getpeercert(binary_form=True)
        return found


def test_calls_over_tls_and_a_certificate_that_is_exchanged(
    start: Start, token: str, demo: Demo, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certificate, key = make(tmp_path, "first")
    gateway = start(listen__certificate=certificate, listen__key=key)
    address = address_of(gateway)
    assert gateway.websocket_url.startswith("wss://")
    with browser(address, origin="https://localhost", wrap=wrapped) as page:
        page.hello(token)
        first = name_of(address)
        Path(certificate).write_text("half of it")
        eventually(lambda: "the certificate stays as it was" in caplog.text)
        assert name_of(address) == first
        make(tmp_path, "second")
        eventually(lambda: name_of(address) != first)
        assert page.ask("call", topic="demo", method="echo")["op"] == "result"
    assert get(address, "/rpcmq.js", wrap=wrapped)[0] == 200
    with browser(address, origin="http://localhost", wrap=wrapped) as page:
        assert page.status == 403


def test_a_certificate_that_is_none_is_named(tmp_path: Path) -> None:
    certificate, _ = make(tmp_path, "first")
    other = tmp_path / "other"
    other.mkdir()
    _, key = make(other, "other")
    for pair in ((certificate, key), (certificate, str(tmp_path / "nothing"))):
        with pytest.raises(ConfigError, match=r"listen\.certificate"):
            Certificate(*pair)
