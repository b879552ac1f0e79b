"""The request context: who asks. It travels with every message from the user's request on."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Self
from uuid import uuid4


@dataclass(frozen=True)
class RequestContext:
    """Sent as what ``to_dict`` gives; a service with ``context=RequestContext`` gets it as this again."""

    user_id: str
    project_id: str
    roles: list[str] = field(default_factory=lambda: ["member"])
    is_admin: bool = False
    request_id: str = field(default_factory=lambda: f"req-{uuid4()}")
    timestamp: datetime = field(default_factory=lambda: datetime.now(UTC))

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Rebuild a context from :meth:`to_dict`."""
        return cls(**values)


def admin_context() -> RequestContext:
    """For what no user asked for."""
    return RequestContext("admin", "admin", roles=["admin"], is_admin=True)
