"""Settings of the front end."""

from __future__ import annotations

from pathlib import Path

import pytest

from rpcmq.errors import ConfigError
from rpcmq.syslog.settings import SyslogSettings, load_settings


def test_options_come_before_the_file(tmp_path: Path) -> None:
    path = tmp_path / "syslog.toml"
    path.write_text('[tcp]\nbind = "127.0.0.1:1"\nidle_seconds = "5m"\n[event]\ntopic = "log.{host}"\n')
    settings = load_settings(str(path), {"tcp.bind": "127.0.0.1:2", "udp.bind": None})
    assert (settings.tcp.bind, settings.tcp.idle_seconds, settings.event.topic) == ("127.0.0.1:2", 300.0, "log.{host}")
    assert settings.udp == SyslogSettings().udp


def test_all_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    path = tmp_path / "syslog.toml"
    path.write_text('[tcp]\nbnd = ""\n[event]\ntopic = "log.{hst}"\n[message]\nmax_bytes = 3\n')
    with pytest.raises(ConfigError) as caught:
        load_settings(str(path))
    unknown, topic, size = str(caught.value).splitlines()
    assert unknown.endswith("tcp.bnd: unknown; did you mean tcp.bind?")
    assert "event.topic = 'log.{hst}': expected words between dots" in topic
    assert "{host}" in topic
    assert "message.max_bytes = 3: expected" in size
