"""Sockets: the only part of rpcmq that uses ZeroMQ, running engines inside a gevent hub."""
