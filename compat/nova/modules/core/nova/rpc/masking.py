"""Logging of messages without their secrets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_SECRETS = frozenset({"_context_auth_token", "auth_token", "new_pass", "admin_password"})


def safe_log(log_func: Callable[[str, Any], Any], msg: str, msg_data: Any) -> Any:
    """``log_func(msg, copy of msg_data)``, tokens and passwords at any depth made unreadable."""
    return log_func(msg, _masked(msg_data))


def _masked(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: "<SANITIZED>" if _is_secret(key) else _masked(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_masked(each) for each in data]
    return data


def _is_secret(key: Any) -> bool:
    return isinstance(key, str) and (key.lower() in _SECRETS or "password" in key.lower())
