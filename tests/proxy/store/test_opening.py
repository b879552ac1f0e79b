"""The store that settings ask for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rpcmq.errors import ConfigError
from rpcmq.proxy.store import FileStore, MemoryStore, Store, TieredStore
from rpcmq.proxy.store.mongo import MongoStore
from rpcmq.proxy.store.opening import open_store


def opened(**changes: Any) -> Store:
    settings: dict[str, Any] = {
        "memory_bytes": 1 << 20,
        "memory_body": 1 << 16,
        "directory": "",
        "directory_bytes": 1 << 20,
        "mongodb": "",
        "database": "rpcmq",
    }
    return open_store(**(settings | changes))


def test_memory_alone() -> None:
    assert isinstance(opened(), MemoryStore)


def test_memory_before_a_folder(tmp_path: Path) -> None:
    store = opened(directory=str(tmp_path / "cache"))
    assert isinstance(store, TieredStore) and isinstance(store.shared, FileStore) and (tmp_path / "cache").is_dir()
    store.close()


def test_memory_before_a_database() -> None:
    store = opened(mongodb="mongodb://127.0.0.1:1")
    assert isinstance(store, TieredStore) and isinstance(store.shared, MongoStore)
    store.close()


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"directory": "/dev/null/cache"}, "the folder of the cache, /dev/null/cache, cannot be used: Not a directory"),
        ({"mongodb": "http://127.0.0.1"}, "Invalid URI scheme"),
        ({"mongodb": "mongodb://user:secret@127.0.0.1:x"}, "Port contains non-digit"),
        ({"mongodb": "mongodb://127.0.0.1", "database": "a b"}, "database names cannot contain"),
        ({"mongodb": "mongodb://127.0.0.1", "directory": "/tmp"}, "not both"),
    ],
)
def test_what_cannot_be_had_is_said_at_the_start(changes: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as raised:
        opened(**changes)
    assert "secret" not in str(raised.value)
