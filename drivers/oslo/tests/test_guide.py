"""The guide for operators: two controllers are set up as docs/openstack.md has it typed; services begin at either."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import oslo_messaging
import pytest
from oslo_config import cfg
from processes import Process, eventually

from rpcmq_oslo import doctor

PAGE = Path(__file__).parents[3] / "docs" / "openstack.md"
HOSTS = ("controller-1", "controller-2")


class Echo:
    def echo(self, ctxt: object, n: int) -> int:
        return n


class Cloud:
    """Its hosts are folders, and its names ports of this host."""

    def __init__(self, folder: Path, ends: ExitStack) -> None:
        self.folder, self.ends = folder, ends
        self.routers: dict[str, Process] = {}
        self.ports = {}
        for host in HOSTS:
            with socket.create_server(("127.0.0.1", 0)) as found:
                self.ports[host] = found.getsockname()[1]
            (folder / host / "etc" / "nova").mkdir(parents=True)

    def here(self, text: str, host: str) -> str:
        """Return ``text`` of the page as it is typed on ``host``."""
        for name, port in self.ports.items():
            text = text.replace(f"{name}:/etc/", f"{self.folder / name}/ETC/").replace(
                f"{name}:7700", f"127.0.0.1:{port}"
            )
            if (keys := self.folder / name / "etc" / "rpcmq" / "router.key").exists():
                public = re.findall('public = "(.*)"', keys.read_text())[0]
                text = text.replace(f"KEY OF {name.upper()}", public)
        text = text.replace("0.0.0.0:7700", f"127.0.0.1:{self.ports.get(host)}")
        return text.replace("/etc/", f"{self.folder / host}/etc/").replace("/ETC/", "/etc/")

    def type(self, lines: str, host: str) -> None:
        text = self.here(lines, host)
        text = re.sub(r"^rpcmq ", f"{sys.executable} -m rpcmq ", text, flags=re.MULTILINE)
        text = text.replace(".key rpcmq ", f".key {sys.executable} -m rpcmq ").replace("scp -p", "cp -p")
        if text.rstrip().endswith(" &"):
            command = [*text.rstrip(" &\n").split(), "--name", host]
            self.routers[host] = self.ends.enter_context(Process(command, RPCMQ_ROUTER_HTTP="127.0.0.1:0"))
            self.routers[host].expect("listening on")
            return
        ended = subprocess.run(["bash", "-euc", text], capture_output=True, text=True, timeout=100, check=False)
        assert ended.returncode == 0, f"{text}\n{ended.stdout}{ended.stderr}"


def steps() -> list[tuple[str, str]]:
    """Hosts, and what is typed on them, in their order."""
    section = PAGE.read_text().split("## Install\n")[1].split("\n## ")[0]
    blocks = re.findall(r"^```text\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    found = []
    for block in blocks:
        for step in re.split(r"^(?=# on )", block, flags=re.MULTILINE)[1:]:
            where, _, lines = step.partition("\n")
            hosts = (
                HOSTS if "each controller" in where else [host for host in HOSTS if where.startswith(f"# on {host}")]
            )
            found += [(host, lines) for host in hosts]
    return found


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    with ExitStack() as ends:
        yield Cloud(tmp_path, ends)


def test_two_controllers_are_set_up_as_the_guide_has_it_typed(cloud: Cloud, conf: cfg.ConfigOpts) -> None:
    typed = steps()
    assert len(typed) == 8
    for host, lines in typed:
        if "rpcmq --router" in lines:
            urls = ",".join(f"tcp://127.0.0.1:{port}" for port in cloud.ports.values())
            ask = cloud.here(f"RPCMQ_KEY_FILE=/etc/rpcmq/ops.key {sys.executable} -m rpcmq mesh --router {urls}", host)
            eventually(
                lambda ask=ask: subprocess.run(ask, shell=True, capture_output=True, check=False).returncode == 0
            )
        cloud.type(lines, host)
    here = cloud.folder / "controller-1" / "etc"
    (here / "rpcmq" / "nova.key").rename(here / "nova" / "rpcmq.key")
    settings = here / "nova" / "nova.conf"
    example = re.search(r"^```ini\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert example is not None
    settings.write_text(cloud.here(example[1], "controller-1"))
    found = list(doctor.check([str(settings)], "", "nova", str(here / "rpcmq" / "ops.key"), 10))
    assert {level for level, *_ in found} == {"ok"}, found

    # What begins while the first router is away has the second one's key, too.
    cloud.routers["controller-1"].kill()
    conf(["--config-file", str(settings)])
    conf.set_override("control_exchange", "nova")
    transport = oslo_messaging.get_rpc_transport(conf)
    target = oslo_messaging.Target(topic="compute", server="node-1")
    server = oslo_messaging.get_rpc_server(transport, target, [Echo()])
    server.start()
    assert oslo_messaging.get_rpc_client(transport, target, timeout=60).call({}, "echo", n=7) == 7
    server.stop()
    server.wait()
    transport.cleanup()
