"""Certificates by name, loaded anew while connections and session tickets live on."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gevent import ssl
from gevent.socket import create_connection

from rpcmq.errors import ConfigError
from rpcmq.proxy.http.tls import Certificate, Certificates, pass_over_bad_names
from rpcmq.testing import eventually
from tests.proxy.certificates import make_certificate
from tests.proxy.http.serving import SECONDS, Served, everything, serving

LAST = b"GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


def client_context() -> Any:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context


def connect(served: Served, name: str | None, context: Any = None, session: Any = None) -> Any:
    sock = create_connection(served.address, timeout=SECONDS)
    return (context or client_context()).wrap_socket(sock, server_hostname=name, session=session)


def shown_name(served: Served, name: str | None) -> bytes:
    """The common name, whole in the certificate's bytes, that the server shows for ``name``."""
    with connect(served, name) as sock:
        found: bytes = sock.getpeercert(True)
        sock.sendall(LAST)
        everything(sock)
        return found


def test_the_certificate_is_chosen_by_name(tmp_path: Path) -> None:
    certificates = Certificates([make_certificate(tmp_path, "a.example"), make_certificate(tmp_path, "*.b.example")])
    with serving(context=lambda: certificates.context) as served:
        for name, common in [
            ("a.example", b"a.example"), ("x.b.example", b"*.b.example"), ("X.B.example", b"*.b.example"),
            ("y.x.b.example", b"a.example"), (None, b"a.example"),
        ]:  # fmt: skip
            assert common in shown_name(served, name)


def test_a_request_over_tls(tmp_path: Path) -> None:
    certificates = Certificates([make_certificate(tmp_path, "a.example")])
    with serving(context=lambda: certificates.context) as served, connect(served, "a.example") as sock:
        assert sock.selected_alpn_protocol() == "http/1.1"
        sock.sendall(LAST)
        assert everything(sock).endswith(b"GET /last ")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_certificates_are_loaded_anew_and_tickets_stay_good(tmp_path: Path, version: Any) -> None:
    certificates = Certificates([make_certificate(tmp_path, "a.example", label="old.example")])
    context = client_context()
    context.maximum_version = version
    with serving(context=lambda: certificates.context) as served:
        with connect(served, "a.example", context) as sock:
            sock.sendall(LAST)
            everything(sock)
            session = sock.session
        assert not certificates.reload_if_changed()
        make_certificate(tmp_path, "a.example", label="new.example")
        assert certificates.reload_if_changed()
        assert b"new.example" in shown_name(served, "a.example")
        with connect(served, "a.example", context, session) as sock:
            assert sock.session_reused
            sock.sendall(LAST)
            assert everything(sock).endswith(b"GET /last ")


def test_files_that_cannot_be_used_leave_the_former_ones(tmp_path: Path) -> None:
    made = make_certificate(tmp_path, "a.example")
    certificates = Certificates([made])
    Path(made.chain).write_text("nonsense")
    with pytest.raises(ConfigError, match=r"a\.example\.pem and .* cannot be used"):
        certificates.reload_if_changed()
    assert not certificates.reload_if_changed()
    with serving(context=lambda: certificates.context) as served:
        assert b"a.example" in shown_name(served, "a.example")


def test_wrong_certificates_are_named(tmp_path: Path) -> None:
    one, other = make_certificate(tmp_path, "a.example"), make_certificate(tmp_path, "b.example")
    for wrong, error in [
        ([], "no certificate is given"),
        ([Certificate(("a",), str(tmp_path / "none"), one.key)], "none does not exist"),
        ([Certificate(("a",), one.chain, other.key)], "cannot be used"),
        ([one, Certificate(("A.example",), other.chain, other.key)], "a.example is in two of them"),
    ]:
        with pytest.raises(ConfigError, match=error):
            Certificates(wrong)


def test_plain_http_on_the_tls_port_and_silence_harm_nobody(tmp_path: Path) -> None:
    certificates = Certificates([make_certificate(tmp_path, "a.example")])
    with serving(context=lambda: certificates.context, header_seconds=0.5) as served, served.connected() as silent:
        assert b"200" not in served.said(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert b"HTTP" not in everything(silent)
        assert served.server.counters.handshakes_failed == 2
        assert b"a.example" in shown_name(served, "a.example")


def test_a_name_that_is_no_text_fails_its_handshake_and_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ignored: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    pass_over_bad_names()
    certificates = Certificates([make_certificate(tmp_path, "a.example")])
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    hello = client_context().wrap_bio(incoming, outgoing, server_hostname="aaaa.example")
    with pytest.raises(ssl.SSLWantReadError):
        hello.do_handshake()
    with serving(context=lambda: certificates.context) as served:
        served.said(outgoing.read().replace(b"aaaa.example", b"\xff\xfe\xfd\xfc.example"))
        eventually(lambda: served.server.counters.handshakes_failed == 1)
    assert ignored == []
    sys.unraisablehook(SimpleNamespace(exc_value=ValueError(), object=b""))
    assert len(ignored) == 1
