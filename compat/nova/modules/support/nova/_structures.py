"""The part of ``nova.utils`` about text, dictionaries and lists."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from xml.sax import saxutils


def utf8(value: Any) -> bytes:
    """Text as bytes."""
    return value if isinstance(value, bytes) else str(value).encode()


def xhtml_escape(value: str) -> str:
    """Text that may stand in a document or an attribute."""
    return saxutils.escape(value, {'"': "&quot;", "'": "&apos;"})


def str_dict_replace(s: str, mapping: dict[str, str]) -> str:
    """Text with each key replaced by its value."""
    for old, new in mapping.items():
        s = s.replace(old, new)
    return s


def flatten_dict(dict_: dict[str, Any], flattened: dict[str, Any] | None = None) -> dict[str, Any]:
    """The items of a dict and of the dicts in it."""
    flattened = {} if flattened is None else flattened
    for key, value in dict_.items():
        if hasattr(value, "items"):
            flatten_dict(value, flattened)
        else:
            flattened[key] = value
    return flattened


def partition_dict(dict_: dict[str, Any], keys: Iterable[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The items of these keys, and the others."""
    wanted = {*keys}
    inside = {key: value for key, value in dict_.items() if key in wanted}
    return inside, {key: value for key, value in dict_.items() if key not in wanted}


def subset_dict(dict_: dict[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """The items of these keys."""
    return partition_dict(dict_, keys)[0]


def map_dict_keys(dict_: dict[str, Any], key_map: dict[str, str]) -> dict[str, Any]:
    """A dict with some keys renamed."""
    return {key_map.get(key, key): value for key, value in dict_.items()}


def get_from_path(items: Any, path: str) -> list[Any]:
    """Return the values at a path such as ``a/b`` in a list of nested dicts and lists."""
    if items is None:
        return []
    first, _, rest = path.partition("/")
    if not first:
        raise ValueError("Invalid mini_xpath")
    found: list[Any] = []
    for item in items if isinstance(items, list) else [items]:
        value = item.get(first) if callable(getattr(item, "get", None)) else None
        if value is not None:
            found += value if isinstance(value, list) else [value]
    return get_from_path(found, rest) if rest else found


def check_isinstance(obj: Any, cls: type) -> Any:
    """``obj``, which must be a ``cls``.

    Raises:
        Exception: it is not.
    """
    if isinstance(obj, cls):
        return obj
    raise Exception(f"Expected object of type: {cls}")


def is_none_string(val: Any) -> bool:
    """Return whether it is text that says none."""
    return isinstance(val, str) and val.lower() == "none"


def convert_to_list_dict(lst: Any, label: str) -> list[dict[str, Any]] | None:
    """Each item as a dict of one key."""
    if not lst:
        return None
    return [{label: item} for item in (lst if isinstance(lst, list) else [lst])]
