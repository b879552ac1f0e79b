"""The store that settings ask for."""

from __future__ import annotations

from rpcmq.errors import ConfigError
from rpcmq.proxy.store.contract import Store
from rpcmq.proxy.store.files import FileStore
from rpcmq.proxy.store.memory import MemoryStore
from rpcmq.proxy.store.tiers import TieredStore

__all__ = ["open_store"]


def open_store(
    *,
    memory_bytes: int,
    memory_body: int,
    directory: str,
    directory_bytes: int,
    mongodb: str,
    database: str,
    mongodb_bytes: int = 64 << 30,
) -> Store:
    """Return a store: memory, before a folder or a MongoDB database where one is given. Call it after forking.

    Args:
        memory_bytes: bound of the memory.
        memory_body: largest body that is kept in memory.
        directory: the folder; empty: none.
        directory_bytes: bound of the folder.
        mongodb: URI of the server; empty: none.
        database: name of the database.
        mongodb_bytes: bound of the database.

    Raises:
        ConfigError: both are given, the folder cannot be used, or the URI or the name is none.
    """
    memory = MemoryStore(memory_bytes, max_body=memory_body)
    if directory and mongodb:
        raise ConfigError("a cache has one shared store: give a folder or a MongoDB server, not both")
    if directory:
        try:
            return TieredStore(memory, FileStore(directory, directory_bytes))
        except OSError as error:
            raise ConfigError(
                f"the folder of the cache, {directory}, cannot be used: {error.strerror or error}"
            ) from error
    if mongodb:
        return TieredStore(memory, _mongo(mongodb, database, mongodb_bytes), is_remote=True)
    return memory


def _mongo(uri: str, database: str, max_bytes: int) -> Store:
    try:
        from pymongo.errors import PyMongoError

        from rpcmq.proxy.store.mongo import MongoStore
    except ImportError as error:
        raise ConfigError("a MongoDB store needs pymongo: pip install 'rpcmq[proxy]'") from error
    try:
        return MongoStore(uri, database, max_bytes)
    except (PyMongoError, ValueError) as error:
        # The URI may have a password in it, and the error does not.
        raise ConfigError(f"the MongoDB store of the cache cannot be used: {error}") from error
