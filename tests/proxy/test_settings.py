"""The settings of the proxy, and clear errors for what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from rpcmq.errors import ConfigError
from rpcmq.proxy.caching import CachePolicy
from rpcmq.proxy.front.front_end import policy_of
from rpcmq.proxy.settings import OriginUrl, ProxySettings, load_settings

SITE = '[[sites]]\nnames = ["www.example.org", "*.example.org"]\norigins = ["http://10.0.0.5:8080", "https://b"]\n'
PLAIN = '[front]\nhttps = ""\nhttp = "127.0.0.1:8080"\n'


def load(tmp_path: Path, text: str, **options: object) -> ProxySettings:
    path = tmp_path / "proxy.toml"
    path.write_text(text)
    return load_settings(str(path), {key.replace("__", "."): value for key, value in options.items()})


def test_settings_are_read(tmp_path: Path) -> None:
    certificate = '[[tls.certificates]]\nnames = ["*.example.org"]\nchain = "c.pem"\nkey = "k.pem"\n'
    found = load(tmp_path, '[cache]\nmemory_bytes = "64MiB"\nstale_if_error = "1h"\n' + SITE + certificate)
    assert (found.cache.memory_bytes, found.cache.stale_if_error) == (64 * 2**20, 3600.0)
    assert found.sites[0].origins == (OriginUrl("http", "10.0.0.5", 8080), OriginUrl("https", "b", 443))
    assert found.certificates[0].chain == "c.pem"


def test_options_come_before_the_file(tmp_path: Path) -> None:
    found = load(tmp_path, PLAIN + SITE, front__http="127.0.0.1:9", front__processes=3, front__admin=None)
    assert (found.front.http, found.front.processes, found.front.admin) == ("127.0.0.1:9", 3, "127.0.0.1:8081")


def test_the_site_of_a_host(tmp_path: Path) -> None:
    more = '[[sites]]\nnames = ["x.example.org"]\norigins = ["http://c"]\n'
    found = load(tmp_path, PLAIN + SITE + more)
    names = {host: site and site.name for host in ("www.example.org", "a.example.org", "x.example.org", "example.org")
             if (site := found.site_of(host)) or True}  # fmt: skip
    assert names == {
        "www.example.org": "www.example.org", "a.example.org": "www.example.org", "x.example.org": "x.example.org",
        "example.org": None,
    }  # fmt: skip
    assert load(tmp_path, PLAIN + '[[sites]]\nnames = ["*"]\norigins = ["http://c"]\n').site_of("any") is not None


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (PLAIN, r"no site is given: add \[\[sites\]\] with names and origins"),
        (SITE, r"front.https = '127.0.0.1:8443' needs a certificate"),
        (PLAIN + "prot = 1\n" + SITE, r"front.prot: unknown"),
        (PLAIN + "proceses = 1\n" + SITE, r"front.proceses: unknown; did you mean front.processes\?"),
        (PLAIN + "processes = 0\n" + SITE, r"front.processes = 0: expected an integer from 1"),
        ("colour = 1\n" + PLAIN + SITE, r"colour: unknown"),
        (PLAIN + "sites = 3\n", r"front.sites: unknown"),
        (PLAIN + "[sites]\nnames = []\n", r"sites: expected tables"),
        (PLAIN + SITE + "verfy = false\n", r"sites, number 1: verfy: unknown; did you mean verify\?"),
        (PLAIN + '[[sites]]\nnames = ["a"]\n', r"sites, number 1: origins is missing"),
        (
            PLAIN + '[[sites]]\nnames = ["a:80"]\norigins = ["http://a"]\n',
            r"names = \['a:80'\]: expected a list of host",
        ),
        (PLAIN + '[[sites]]\nnames = ["a"]\norigins = ["http://a/path"]\n', r"origins = .* without a path"),
        (PLAIN + '[[sites]]\nnames = ["a"]\norigins = ["ftp://a"]\n', r"origins = .* expected a list of URLs"),
        (PLAIN + SITE + SITE, r"sites: 'www.example.org' is in two of them"),
        (PLAIN + "[tls]\nkey = 3\n" + SITE, r"tls: expected tables \[\[tls.certificates\]\]"),
        (PLAIN + 'admin = "0.0.0.0:8081"\n' + SITE, r"front.admin = '0.0.0.0:8081' can be reached by others"),
        (PLAIN + "x = [", r"proxy.toml"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        load(tmp_path, text)


def test_all_that_is_wrong_is_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        load(tmp_path, "[front]\nx = 1\n[cache]\ny = 2\n[[sites]]\nz = 3\n")
    assert len(str(raised.value).splitlines()) >= 5


def test_all_contradictions_are_named_at_once(tmp_path: Path) -> None:
    cache = '[cache]\ndirectory = "/a"\nmongodb = "mongodb://a"\n'
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, '[front]\nadmin = "0.0.0.0:1"\n' + cache + SITE)
    lines = str(caught.value).splitlines()
    assert len(lines) == 3 and all(str(tmp_path) in line for line in lines)
    for text in ("needs a certificate", "one shared store", "can be reached by others"):
        assert sum(text in line for line in lines) == 1


def test_the_policy_has_what_is_set_of_stale_responses(tmp_path: Path) -> None:
    text = '[cache]\nstale_if_disconnected = "1m"\nstale_beside_s_maxage = true\n'
    policy = policy_of(load(tmp_path, PLAIN + text + SITE))
    assert policy.stale_if_disconnected == 60.0 and policy.stale_beside_s_maxage
    assert policy_of(load(tmp_path, PLAIN + SITE)) == CachePolicy()
