"""Every name of eventlet that services of 2011 to 2013 use is there."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

SURFACE = {
    "eventlet": "spawn spawn_n spawn_after spawn_after_local call_after exc_after sleep kill getcurrent monkey_patch "
    "import_patched patcher GreenPool GreenPile Queue Event Semaphore Timeout with_timeout listen connect serve "
    "wrap_ssl StopServe __version__ version_info",
    "eventlet.greenthread": "spawn spawn_n spawn_after spawn_after_local kill cancel sleep getcurrent GreenThread "
    "with_timeout exc_after call_after call_after_global call_after_local",
    "eventlet.greenpool": "GreenPool GreenPile",
    "eventlet.event": "Event NOT_USED",
    "eventlet.queue": "Queue LightQueue PriorityQueue LifoQueue Empty Full",
    "eventlet.pools": "Pool TokenPool",
    "eventlet.semaphore": "Semaphore BoundedSemaphore CappedSemaphore",
    "eventlet.timeout": "Timeout with_timeout",
    "eventlet.corolocal": "local get_ident",
    "eventlet.db_pool": "ConnectionPool RawConnectionPool TpooledConnectionPool DatabaseConnector ConnectTimeout",
    "eventlet.tpool": "execute Proxy killall set_num_threads",
    "eventlet.wsgi": "server HttpProtocol Server MAX_REQUEST_LINE MAX_HEADER_LINE DEFAULT_LOG_FORMAT",
    "eventlet.convenience": "listen connect serve wrap_ssl StopServe",
    "eventlet.hubs": "get_hub use_hub get_default_hub trampoline notify_close notify_opened",
    "eventlet.patcher": "monkey_patch is_monkey_patched original inject import_patched patch_function slurp_properties",
    "eventlet.greenio": "GreenSocket GreenPipe shutdown_safe",
    "eventlet.support": "get_errno clear_sys_exc_info greenlets",
    "eventlet.support.greenlets": "getcurrent greenlet GreenletExit",
    "eventlet.debug": "hub_exceptions hub_listener_stacks hub_timer_stacks hub_prevent_multiple_readers "
    "hub_blocking_detection tpool_exceptions format_hub_listeners format_hub_timers spew unspew",
    "eventlet.backdoor": "backdoor_server backdoor",
    "eventlet.util": "__original_socket__",
    "eventlet.green.socket": "socket create_connection getaddrinfo error timeout AF_INET SOL_SOCKET",
    "eventlet.green.ssl": "SSLContext SSLError CERT_NONE",
    "eventlet.green.select": "select error",
    "eventlet.green.threading": "Thread Lock local current_thread Event",
    "eventlet.green.thread": "get_ident allocate_lock start_new_thread",
    "eventlet.green.time": "sleep time",
    "eventlet.green.os": "read write waitpid fork path getpid",
    "eventlet.green.subprocess": "Popen PIPE check_call CalledProcessError",
    "eventlet.green.urllib2": "urlopen Request URLError HTTPError build_opener",
    "eventlet.green.urllib": "urlopen quote unquote urlencode",
    "eventlet.green.urllib.request": "urlopen Request",
    "eventlet.green.urllib.parse": "urlparse urlencode",
    "eventlet.green.httplib": "HTTPConnection HTTPSConnection HTTPException",
    "eventlet.green.http.client": "HTTPConnection",
    "eventlet.green.Queue": "Queue PriorityQueue Empty Full",
    "eventlet.green.queue": "Queue Empty",
    "eventlet.green.zmq": "Context REQ Poller",
    "eventlet.green.BaseHTTPServer": "HTTPServer BaseHTTPRequestHandler",
    "eventlet.green.SocketServer": "TCPServer",
}


@pytest.mark.parametrize("name", SURFACE)
def test_a_module_has_its_names(eventlet: Any, name: str):
    module = importlib.import_module(name)
    assert [missing for missing in SURFACE[name].split() if not hasattr(module, missing)] == []


def test_green_modules_can_be_imported_from_their_package(eventlet: Any):
    green = importlib.import_module("eventlet.green")
    assert green.socket is importlib.import_module("eventlet.green.socket")
    with pytest.raises(ImportError):
        importlib.import_module("eventlet.green.nonsense")
    assert not hasattr(green, "nonsense")


def test_greenlet_is_the_real_one(eventlet: Any):
    import greenlet

    assert eventlet.getcurrent is greenlet.getcurrent
    assert importlib.import_module("eventlet.support.greenlets").GreenletExit is greenlet.GreenletExit
