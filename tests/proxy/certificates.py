"""Certificates for tests, made by the openssl command."""

from __future__ import annotations

from pathlib import Path

from gevent import subprocess

from rpcmq.proxy.http.tls import Certificate


def make_certificate(folder: Path, *names: str, label: str = "") -> Certificate:
    """A self-signed certificate for ``names``."""
    folder.mkdir(exist_ok=True)
    chain, key = folder / f"{names[0]}.pem", folder / f"{names[0]}.key"
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-days", "2", "-subj", f"/CN={label or names[0]}", "-out", str(chain), "-keyout", str(key),
            "-addext", "subjectAltName=" + ",".join(f"DNS:{name}" for name in names),
        ],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    return Certificate(names, str(chain), str(key))
