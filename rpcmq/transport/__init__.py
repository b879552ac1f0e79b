"""The only part of rpcmq that speaks ZeroMQ: engines on sockets inside a gevent hub."""
