"""Peer2Peer: processes are made known to each other and go on alone."""
