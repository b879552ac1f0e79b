"""The part of ``nova.utils`` about network addresses."""

from __future__ import annotations

import ipaddress


def is_valid_ipv4(address: str) -> bool:
    """Return whether it is an IPv4 address of four numbers."""
    try:
        ipaddress.IPv4Address(address)
    except ValueError:
        return False
    return True


def is_valid_ipv6(address: str) -> bool:
    """Return whether it is an IPv6 address."""
    try:
        ipaddress.IPv6Address(address)
    except ValueError:
        return False
    return True


def is_valid_cidr(address: str) -> bool:
    """Return whether it is a network such as ``10.0.0.0/8``."""
    try:
        ipaddress.ip_network(address, strict=False)
    except ValueError:
        return False
    return "/" in address


def get_shortened_ipv6(address: str) -> str:
    """The shortest form."""
    return str(ipaddress.IPv6Address(address))


def last_octet(address: str) -> int:
    """The last number of an IPv4 address."""
    return int(address.split(".")[-1])
