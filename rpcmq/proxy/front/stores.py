"""The store of a front end, as its settings say."""

from __future__ import annotations

from rpcmq.errors import ConfigError
from rpcmq.proxy.settings import CacheSettings
from rpcmq.proxy.store.contract import Store
from rpcmq.proxy.store.files import FileStore
from rpcmq.proxy.store.memory import MemoryStore
from rpcmq.proxy.store.tiers import TieredStore

__all__ = ["store_of"]


def store_of(cache: CacheSettings) -> Store:
    """Open the stores that ``cache`` names.

    Raises:
        ConfigError: one of them cannot be used.
    """
    memory = MemoryStore(cache.memory_bytes, max_body=cache.memory_body)
    if not cache.directory:
        return memory
    try:
        return TieredStore(memory, FileStore(cache.directory, cache.directory_bytes))
    except OSError as error:
        raise ConfigError(f"cache.directory = {cache.directory!r}: cannot be used: {error}") from None
