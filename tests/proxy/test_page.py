"""The page about the proxy: its example of settings is whole, and has the defaults that it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from rpcmq.config.keys import fields_of
from rpcmq.proxy.settings import ProxySettings, SiteSettings, load_settings

PAGE = (Path(__file__).parents[2] / "docs/proxy.md").read_text()
#: Settings whose value there is an example, not the default.
EXAMPLES = {
    "front.https", "front.processes", "router.urls", "cache.directory", "cache.ignored_query", "sites.names",
    "sites.origins",
}  # fmt: skip


def shown() -> str:
    found = re.search(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found[1]


def all_of(settings: Any, prefix: str = "") -> dict[str, Any]:
    return {prefix + info.key: info.default for info in fields_of(settings, has_flags=False)}


def test_the_example_has_all_settings_with_their_defaults(tmp_path: Path) -> None:
    path = tmp_path / "proxy.toml"
    path.write_text(shown())
    found = load_settings(str(path))
    tables = ("router", "front", "access_log", "limits", "cache", "fetch")
    given = {key: value for name in tables for key, value in all_of(getattr(found, name), f"{name}.").items()}
    given |= all_of(found.sites[0], "sites.")
    default = {
        key: value for name in tables for key, value in all_of(getattr(ProxySettings(), name), f"{name}.").items()
    }
    default |= all_of(SiteSettings(), "sites.")
    assert {key: value for key, value in given.items() if key not in EXAMPLES} == {
        key: value for key, value in default.items() if key not in EXAMPLES
    }
    names = {key.rpartition(".")[2] for key in default} - {"admin_token"}
    assert [name for name in names if not re.search(rf"^{name} = ", shown(), re.MULTILINE)] == []
