"""The proxy and nginx as caches of the same origin, each on core 0; their clients are on another core."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

from benchmarks.children import Child, cpu_seconds, program
from benchmarks.queue_cost import tree
from benchmarks.rabbitmq import free_port

__all__ = ["BODY_BYTES", "NGINX", "OURS", "Cache", "caches", "has_peers", "load"]

OURS, NGINX = "rpcmq proxy", "nginx"
BODY_BYTES = 1024
_SERVER_CORE, _CLIENT_CORE = "0", "1"
_STARTING = 30.0
#: Asks for one of a thousand URLs after the other.
_MANY_URLS = """
local number = 0
request = function()
  number = (number + 1) % 1000
  return wrk.format("GET", "/hit/" .. number)
end
"""


#: Each connection waits before it asks again: 32 of them ask about 6,000 times a second.
_PACED = """
delay = function()
  return 5
end
"""


@dataclass(frozen=True)
class Cache:
    """A running cache: its process, with those that it has started, and its URLs."""

    process: Child
    http: str
    https: str

    def cpu_seconds(self) -> float:
        """CPU time of all its processes."""
        return sum(map(cpu_seconds, tree(self.process.pid)()))


def has_peers() -> str:
    """Return the name of a program that is missing; empty: none is."""
    return next((name for name in ("nginx", "wrk", "openssl", "taskset") if shutil.which(name) is None), "")


@contextmanager
def caches() -> Iterator[dict[str, Cache]]:
    """Both, in front of an nginx that serves bodies of :data:`BODY_BYTES`, on the clients' core."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rpcmq-proxy-bench-")))
        chain, key = _certificate(folder)
        origin = free_port()
        stack.enter_context(_nginx(folder / "origin", _origin(origin), origin, _CLIENT_CORE))
        http, https = free_port(), free_port()
        cache = _nginx_cache(folder / "cache", origin, http, https, chain, key)
        nginx = stack.enter_context(_nginx(folder / "nginx", cache, http, _SERVER_CORE))
        yield {
            OURS: stack.enter_context(_ours(folder, origin, chain, key)),
            NGINX: Cache(nginx, f"http://127.0.0.1:{http}", f"https://127.0.0.1:{https}"),
        }


def load(cache: Cache, path: str, seconds: float, *, tls: bool = False, is_paced: bool = False) -> dict[str, float]:
    """Have wrk ask for ``path``, over 32 connections; return rates, latencies and costs.

    Args:
        path: ``*``: one of a thousand after the other.
        is_paced: a few thousand times a second, rather than as often as it is answered.
    """
    url = (cache.https if tls else cache.http) + path.replace("*", "")
    command = ["taskset", "-c", _CLIENT_CORE, "wrk", "-t1", "-c32", f"-d{max(1, round(seconds))}s", "--latency"]
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(_MANY_URLS if path == "*" else _PACED if is_paced else "")
        script.flush()
        command += ["-s", script.name]
        before = cache.cpu_seconds()
        text = subprocess.run([*command, url], capture_output=True, text=True, check=True, timeout=seconds + 60).stdout
        used = cache.cpu_seconds() - before
    if "Non-2xx" in text or "Socket errors" in text:
        raise RuntimeError(f"wrk has seen errors: {text}")
    count = float(_found(r"(\d+) requests in", text))
    return {
        "requests_per_second": float(_found(r"Requests/sec:\s+([0-9.]+)", text)),
        "p99_ms": _milliseconds(_found(r"99%\s+([0-9.]+(?:us|ms|s))", text)),
        "request_cpu_us": used / count * 1e6,
    }


def _found(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    assert found is not None, text
    return found[1]


def _milliseconds(text: str) -> float:
    for unit, factor in (("us", 0.001), ("ms", 1.0), ("s", 1000.0)):
        if text.endswith(unit):
            return float(text.removesuffix(unit)) * factor
    raise ValueError(text)


@contextmanager
def _ours(folder: Path, origin: int, chain: Path, key: Path) -> Iterator[Cache]:
    http, https = free_port(), free_port()
    settings = folder / "proxy.toml"
    settings.write_text(
        f'[front]\nhttp = "127.0.0.1:{http}"\nhttps = "127.0.0.1:{https}"\nadmin = ""\n'
        f'[[tls.certificates]]\nnames = ["localhost"]\nchain = "{chain}"\nkey = "{key}"\n'
        f'[[sites]]\nnames = ["*"]\norigins = ["http://127.0.0.1:{origin}"]\n'
    )
    command = ["taskset", "-c", _SERVER_CORE, sys.executable, "-m", "rpcmq", "proxy", "--config", str(settings)]
    with program(OURS, command) as child:
        child.line("serves https", _STARTING)
        _wait_for(http)
        yield Cache(child, f"http://127.0.0.1:{http}", f"https://127.0.0.1:{https}")


@contextmanager
def _nginx(folder: Path, http_block: str, port: int, core: str) -> Iterator[Child]:
    folder.mkdir()
    configuration = folder / "nginx.conf"
    configuration.write_text(
        f"daemon off; user root; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log;\n"
        "events { worker_connections 1024; }\n"
        f"http {{ access_log off; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; "
        f"fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s; "
        f"keepalive_requests 1000000000; {http_block} }}\n"
    )
    with program("nginx", ["taskset", "-c", core, "nginx", "-c", str(configuration), "-p", str(folder)]) as child:
        _wait_for(port)
        yield child


def _origin(port: int) -> str:
    body = "x" * BODY_BYTES
    return (
        f"server {{ listen 127.0.0.1:{port} backlog=1024; default_type text/plain;"
        f'location /hit {{ add_header Cache-Control "max-age=3600"; return 200 "{body}"; }}'
        f'location /miss {{ add_header Cache-Control "no-store"; return 200 "{body}"; }} }}'
    )


def _nginx_cache(folder: Path, origin: int, http: int, https: int, chain: Path, key: Path) -> str:
    return (
        f"proxy_cache_path {folder} levels=1:2 keys_zone=one:10m; upstream origin {{ server 127.0.0.1:{origin}; "
        "keepalive 64; }"
        f"server {{ listen 127.0.0.1:{http} backlog=1024; listen 127.0.0.1:{https} ssl backlog=1024; "
        f"ssl_certificate {chain}; ssl_certificate_key {key}; location / {{ proxy_pass http://origin; "
        'proxy_http_version 1.1; proxy_set_header Connection ""; proxy_cache one; '
        "add_header X-Cache $upstream_cache_status; } }"
    )


def _certificate(folder: Path) -> tuple[Path, Path]:
    chain, key = folder / "chain.pem", folder / "key.pem"
    command = [
        "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
        "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-out", str(chain), "-keyout", str(key),
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return chain, key


def _wait_for(port: int) -> None:
    end = monotonic() + _STARTING
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if monotonic() > end:
                raise
            sleep(0.05)
