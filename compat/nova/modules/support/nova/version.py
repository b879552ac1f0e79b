"""The version of Nova that the era in force stands for."""

from __future__ import annotations

import compat.nova

FINAL = True
NOVA_VENDOR = "OpenStack Foundation"
NOVA_PRODUCT = "OpenStack Nova"
NOVA_PACKAGE: str | None = None

_VERSIONS = {
    "cactus": "2011.2",
    "diablo": "2011.3",
    "essex": "2012.1",
    "folsom": "2012.2",
    "grizzly": "2013.1",
    "havana": "2013.2",
}


def canonical_version_string() -> str:
    """Year and number of the release."""
    return _VERSIONS[compat.nova.era()]


def version_string() -> str:
    """Like :func:`canonical_version_string`."""
    return canonical_version_string()


def vcs_version_string() -> str:
    """Branch and revision, of which there are none."""
    return "LOCALBRANCH:LOCALREVISION"


def version_string_with_vcs() -> str:
    """Version, branch and revision."""
    return f"{canonical_version_string()}-{vcs_version_string()}"


def version_string_with_package() -> str:
    """Version and package."""
    return f"{canonical_version_string()}-{NOVA_PACKAGE}" if NOVA_PACKAGE else canonical_version_string()


def product_string() -> str:
    """Name of the product."""
    return NOVA_PRODUCT


def vendor_string() -> str:
    """Name of the vendor."""
    return NOVA_VENDOR


def package_string() -> str | None:
    """Name of the package."""
    return NOVA_PACKAGE
