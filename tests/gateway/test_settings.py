"""Settings of the gateway."""

from __future__ import annotations

from pathlib import Path

import pytest

from rpcmq.errors import ConfigError
from rpcmq.gateway.settings import GatewaySettings, load_settings


def test_options_come_before_the_file(tmp_path: Path) -> None:
    path = tmp_path / "gateway.toml"
    path.write_text('[listen]\nbind = "127.0.0.1:1"\n[limits]\noutgoing_bytes = "2MiB"\n[times]\nping_seconds = "5s"\n')
    settings = load_settings(str(path), {"listen.bind": "127.0.0.1:2", "access.origins": ["https://a.example"]})
    assert (settings.listen.bind, settings.limits.outgoing_bytes) == ("127.0.0.1:2", 2 << 20)
    assert (settings.times.ping_seconds, settings.access.origins) == (5.0, ("https://a.example",))
    assert settings.message == GatewaySettings().message


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"listen.bind": "nowhere"}, "listen.bind = 'nowhere': expected host:port"),
        ({"listen.bind": ""}, "listen.bind = '': expected host:port"),
        ({"listen.path": "rpcmq"}, "listen.path = 'rpcmq': expected a path"),
        ({"listen.key": "a.key"}, "there is no listen.certificate"),
        ({"listen.proxies": ["10.0.0.0/33"]}, "listen.proxies"),
        ({"access.origins": ["app.example.org"]}, "access.origins"),
        ({"access.origins": "https://a.example"}, "access.origins"),
        ({"access.tokens": ""}, "access.tokens = '': expected a file"),
        ({"limits.requests": 0}, "limits.requests = 0: expected an integer >= 1"),
        ({"limits.nope": 1}, "limits.nope: unknown"),
    ],
)
def test_what_is_wrong_is_named(options: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(None, options)
    assert problem in str(caught.value)


@pytest.mark.parametrize("bind", ["0.0.0.0:7790", "[::]:7790", "10.0.0.7:1", "gateway.example.org:1", "*:1"])
def test_no_token_crosses_a_network_in_the_clear_unless_the_operator_says_so(bind: str) -> None:
    with pytest.raises(ConfigError, match="in the clear"):
        load_settings(None, {"listen.bind": bind})
    assert load_settings(None, {"listen.bind": bind, "listen.insecure": True}).listen.bind == bind
    assert load_settings(None, {"listen.bind": bind, "listen.certificate": "c.pem"}).listen.bind == bind


@pytest.mark.parametrize("bind", ["127.0.0.1:0", "[::1]:0", "localhost:0", "127.3.2.1:5"])
def test_loopback_needs_nothing(bind: str) -> None:
    assert load_settings(None, {"listen.bind": bind}).listen.bind == bind
