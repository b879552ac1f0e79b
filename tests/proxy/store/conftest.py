from tests.proxy.store.mongo_server import mongo_database, mongo_server, mongo_uri

__all__ = ["mongo_database", "mongo_server", "mongo_uri"]
