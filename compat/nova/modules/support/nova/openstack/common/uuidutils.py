"""UUIDs as text."""

from __future__ import annotations

import uuid
from typing import Any


def generate_uuid() -> str:
    """A random one."""
    return str(uuid.uuid4())


def is_uuid_like(val: Any) -> bool:
    """Return whether it is one, in the usual form."""
    try:
        return bool(str(uuid.UUID(val)) == val)
    except (TypeError, ValueError, AttributeError):
        return False
