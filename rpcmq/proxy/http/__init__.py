"""HTTP/1.1 (RFC 9112) on sockets of gevent: strict parsing, one write for each response, limits, TLS."""

from __future__ import annotations
