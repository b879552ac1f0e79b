"""rpcmq's proxy, and others as a distribution ships them: each a private process with a sensible operator's settings.

They cache what the origin's fields let them, revalidate rather than fetch, and obey requests where they can be told to.
"""

from __future__ import annotations

import grp
import os
import pwd
import shutil
import signal
import sys
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import gevent
from gevent import socket, subprocess

#: Seconds that one may take to start.
_SECONDS = 40.0

_RPCMQ = """
[front]
https = ""
http = "127.0.0.1:{port}"
admin = ""
[[sites]]
names = ["*"]
origins = ["http://127.0.0.1:{origin}"]
max_failures = 1000
[cache]
directory = "{folder}/cache"
"""

_NGINX = """
worker_processes 1; pid {folder}/pid; error_log {folder}/error.log; daemon off; master_process off; user {user} {group};
events {{ worker_connections 1024; }}
http {{
  access_log off; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  proxy_cache_path {folder}/cache keys_zone=c:8m levels=1:2 max_size=100m;
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://127.0.0.1:{origin}; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header
      Host $http_host; proxy_cache c; proxy_cache_revalidate on; proxy_cache_lock on; proxy_cache_background_update on;
    }}
  }}
}}
"""

_VARNISH = """
vcl 4.1;
backend default {{ .host = "127.0.0.1"; .port = "{origin}"; }}
sub vcl_backend_response {{ set beresp.keep = 1h; }}
"""

_SQUID = """
http_port 127.0.0.1:{port} accel defaultsite=127.0.0.1:{port} no-vhost
cache_peer 127.0.0.1 parent {origin} 0 no-query originserver name=o
acl all_of_it src all
http_access allow all_of_it
cache_peer_access o allow all_of_it
cache_mem 64 MB
access_log none
cache_log {folder}/cache.log
pid_filename {folder}/pid
coredump_dir {folder}
cache_effective_user {user}
shutdown_lifetime 1 second
"""

_APACHE = """
ServerRoot {folder}
ServerName 127.0.0.1
Listen 127.0.0.1:{port}
PidFile {folder}/pid
ErrorLog {folder}/error.log
User {user}
Group {group}
LoadModule mpm_event_module {modules}/mod_mpm_event.so
LoadModule authz_core_module {modules}/mod_authz_core.so
LoadModule proxy_module {modules}/mod_proxy.so
LoadModule proxy_http_module {modules}/mod_proxy_http.so
LoadModule cache_module {modules}/mod_cache.so
LoadModule cache_disk_module {modules}/mod_cache_disk.so
Mutex file:{folder} default
CacheRoot {folder}/cache
CacheEnable disk /
CacheLock on
CacheLockPath {folder}/locks
ProxyPreserveHost on
ProxyVia on
ProxyPass / http://127.0.0.1:{origin}/
"""

_TRAFFIC_SERVER = """
CONFIG proxy.config.http.server_ports STRING {port}:ip-in=127.0.0.1
CONFIG proxy.config.reverse_proxy.enabled INT 1
CONFIG proxy.config.url_remap.remap_required INT 1
CONFIG proxy.config.url_remap.pristine_host_hdr INT 1
CONFIG proxy.config.http.cache.http INT 1
CONFIG proxy.config.http.cache.required_headers INT 0
CONFIG proxy.config.http.insert_response_via_str INT 1
CONFIG proxy.config.diags.debug.enabled INT 0
CONFIG proxy.config.admin.user_id STRING {user}
"""


def _nginx(folder: Path, port: int, origin: int) -> list[str]:
    (folder / "nginx.conf").write_text(
        _NGINX.format(folder=folder, port=port, origin=origin, user=_user(), group=_group())
    )
    return ["nginx", "-p", str(folder), "-e", f"{folder}/error.log", "-c", f"{folder}/nginx.conf"]


def _varnish(folder: Path, port: int, origin: int) -> list[str]:
    (folder / "default.vcl").write_text(_VARNISH.format(origin=origin))
    options = ["-a", f"127.0.0.1:{port}", "-f", f"{folder}/default.vcl", "-n", f"{folder}/n", "-s", "malloc,64m"]
    return ["varnishd", "-F", "-j", "none", *options]


def _squid(folder: Path, port: int, origin: int) -> list[str]:
    settings = _SQUID.format(folder=folder, port=port, origin=origin, user=_user())
    (folder / "squid.conf").write_text(settings)
    return ["squid", "-N", "-f", f"{folder}/squid.conf", "-n", f"s{port}"]


def _apache(folder: Path, port: int, origin: int) -> list[str]:
    for name in ("cache", "locks"):
        (folder / name).mkdir()
    names = {"user": _user(), "group": _group(), "modules": "/usr/lib/apache2/modules"}
    (folder / "httpd.conf").write_text(_APACHE.format(folder=folder, port=port, origin=origin, **names))
    return ["apache2", "-X", "-f", f"{folder}/httpd.conf"]


def _traffic_server(folder: Path, port: int, origin: int) -> list[str]:
    names = ("sysconfdir", "localstatedir", "runtimedir", "logdir", "cachedir", "datadir")
    for name in names:
        (folder / name).mkdir()
    own = {name: folder / name for name in names}
    usr = {"prefix": "/usr", "exec_prefix": "/usr", "bindir": "/usr/bin", "sbindir": "/usr/sbin", "libdir": "/usr/lib"}
    layout = {**usr, "includedir": "/usr/include", "libexecdir": "/usr/lib/trafficserver/modules", **own}
    (folder / "runroot.yaml").write_text("".join(f"{name}: {place}\n" for name, place in layout.items()))
    settings = folder / "sysconfdir"
    (settings / "records.config").write_text(_TRAFFIC_SERVER.format(port=port, user=_user()))
    (settings / "remap.config").write_text(f"map http://127.0.0.1:{port}/ http://127.0.0.1:{origin}/\n")
    (settings / "storage.config").write_text(f"{folder}/cachedir 64M\n")
    for name in ("ip_allow.yaml", "logging.yaml", "sni.yaml"):
        shutil.copy(f"/etc/trafficserver/{name}", settings)
    for name in (
        "plugin.config",
        "parent.config",
        "hosting.config",
        "cache.config",
        "volume.config",
        "splitdns.config",
    ):
        (settings / name).write_text("")
    return ["traffic_server", f"--run-root={folder}/runroot.yaml"]


def _rpcmq(folder: Path, port: int, origin: int) -> list[str]:
    settings = folder / "proxy.toml"
    settings.write_text(_RPCMQ.format(port=port, origin=origin, folder=folder))
    return [sys.executable, "-m", "rpcmq", "proxy", "--config", str(settings)]


def _user() -> str:
    """The user as which a peer runs: some refuse to be root."""
    return "nobody" if os.getuid() == 0 else pwd.getpwuid(os.getuid()).pw_name


def _group() -> str:
    return grp.getgrgid(pwd.getpwnam(_user()).pw_gid).gr_name


def _give_away(folder: Path) -> None:
    """Have the folder belong to the user as which the peer runs."""
    if os.getuid() == 0:
        for path in (folder, *folder.rglob("*")):
            shutil.chown(path, _user(), _group())


PEERS: dict[str, tuple[str, Callable[[Path, int, int], list[str]]]] = {
    "rpcmq": (sys.executable, _rpcmq),
    "nginx": ("nginx", _nginx),
    "Varnish": ("varnishd", _varnish),
    "Squid": ("squid", _squid),
    "Apache httpd": ("apache2", _apache),
    "Traffic Server": ("traffic_server", _traffic_server),
}


def peer(name: str) -> str:
    """Return the name of a peer that is installed, as it is in :data:`PEERS`; capitals do not count.

    Raises:
        ArgumentTypeError: there is none of that name, or it is not installed.
    """
    found = {known.casefold(): known for known in PEERS}.get(name.casefold())
    if found is None:
        raise ArgumentTypeError(f"no peer is named {name!r}; known: {', '.join(PEERS)}")
    if not is_installed(found):
        raise ArgumentTypeError(f"{found} is not installed: its program {PEERS[found][0]} is not in the path")
    return found


def is_installed(name: str) -> bool:
    """Return whether the program of a peer is there."""
    return _program(PEERS[name][0]) is not None


@contextmanager
def running(name: str, folder: Path, origin: int) -> Iterator[tuple[str, int]]:
    """The address of a peer before the origin at the port ``origin``, which lives in ``folder``."""
    port = _free_port()
    command = PEERS[name][1](folder, port, origin)
    program = _program(command[0])
    assert program is not None, f"{name} is not installed"
    if name != "rpcmq":
        _give_away(folder)
    with open(folder / "output", "wb") as output:
        process = subprocess.Popen(
            [program, *command[1:]], stdout=output, stderr=subprocess.STDOUT, start_new_session=True, cwd=folder
        )
    try:
        _wait_for(process, port, folder / "output")
        yield "127.0.0.1", port
    finally:
        if process.poll() is None:
            # Its workers with it: the session is its own.
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _wait_for(process: subprocess.Popen[bytes], port: int, output: Path) -> None:
    with gevent.Timeout(_SECONDS, AssertionError(f"it does not listen: {output.read_text(errors='replace')[-500:]}")):
        while True:
            assert process.poll() is None, f"it has ended: {output.read_text(errors='replace')[-1000:]}"
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                return
            except ConnectionRefusedError:
                gevent.sleep(0.1)
