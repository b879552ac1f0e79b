"""The context of a request: who asks, with which roles, for whom.

One class with each era's signature, by the era in force:

* Cactus: ``(user, project, is_admin, read_deleted, remote_address, timestamp, request_id)``; ``to_dict`` has these
  names, and times in whole seconds.
* Diablo: ``user_id``, ``project_id``; roles, token and strategy too; times with microseconds from here on.
* Essex: ``read_deleted`` is 'no', 'yes' or 'only'; the context is the green thread's (``local.store.context``), unless
  there is one and ``overwrite`` is false; unknown keywords are dropped with a warning; an admin has the role 'admin'.
* Folsom and later: quota class, names, service catalog.

``from_dict`` takes what ``to_dict`` of any era gives, so that services of two eras understand each other.
"""

from __future__ import annotations

import copy
import functools
import logging
import random
import string
import uuid
from datetime import datetime
from typing import Any, NamedTuple

import compat.nova
from compat.nova import primitives

from nova.openstack.common import local, timeutils

LOG = logging.getLogger(__name__)

_WHOLE_SECONDS = "%Y-%m-%dT%H:%M:%SZ"

_CACTUS = ("user_id", "project_id", "is_admin", "read_deleted", "remote_address", "timestamp", "request_id")
_DIABLO = (*_CACTUS[:4], "roles", *_CACTUS[4:], "auth_token")
_FOLSOM = ("quota_class", "user_name", "project_name", "service_catalog", "instance_lock_checked")

# What to_dict has, in the order of the arguments but for `overwrite`, which comes ninth.
_FIELDS = {
    "cactus": _CACTUS,
    "diablo": (*_DIABLO, "strategy"),
    "essex": _DIABLO,
    "folsom": (*_DIABLO, *_FOLSOM),
}
_DEFAULTS: dict[str, Any] = {"strategy": "noauth", "instance_lock_checked": False}
_OLD = ("cactus", "diablo")
# Names of the same thing in other eras, or in what other projects called a context.
_OTHER_NAMES = {"user": "user_id", "project": "project_id", "tenant": "project_id"}


def generate_request_id() -> str:
    """A name for a request."""
    return f"req-{uuid.uuid4()}"


class _Shape(NamedTuple):
    """A context in one era.

    Attributes:
        names: its fields.
        defaults: their values where none is given, and the era.
        order: of the constructor's arguments.
        known: all that may be given by name.
        read_deleted: values of that field that are taken as they are.
    """

    names: frozenset[str]
    defaults: dict[str, Any]
    order: tuple[str, ...]
    known: frozenset[str]
    read_deleted: tuple[Any, ...]
    is_old: bool


@functools.lru_cache(maxsize=8)
def _shape(era: str) -> _Shape:
    names = _FIELDS.get(era, _FIELDS["folsom"])
    order = names if "roles" not in names or "strategy" in names else (*names[:9], "overwrite", *names[9:])
    known = frozenset({*order, "overwrite", "roles", "auth_token", "strategy", *_FOLSOM})
    all_names = frozenset({*names, "roles", "auth_token"})
    defaults = {name: _DEFAULTS.get(name) for name in all_names} | {"_era": era}
    is_old = era in _OLD
    return _Shape(all_names, defaults, order, known, () if is_old else ("no", "yes", "only"), is_old)


class RequestContext:
    """The user, roles and identifiers of a request.

    Args:
        args: by position, in the order of the era in force.
        fields: by name; those of another era are understood, unknown ones dropped with a warning.

    Raises:
        ValueError: ``read_deleted`` is none of 'no', 'yes', 'only' (Essex+).
        TypeError: too many arguments, or one of them twice.
    """

    user_id: Any
    project_id: Any
    is_admin: bool
    read_deleted: Any
    remote_address: str | None
    timestamp: datetime
    request_id: str
    roles: list[str]
    auth_token: str | None
    _era: str

    def __init__(self, *args: Any, **fields: Any) -> None:
        shape = _shape(compat.nova.era())
        if args or not fields.keys() <= shape.known:
            fields = self._given(args, fields, shape)
        overwrite = fields.pop("overwrite", True)
        self.__dict__ = shape.defaults | {name: fields[name] for name in fields if name in shape.names}
        self._complete(shape, overwrite)

    def _complete(self, shape: _Shape, overwrite: bool) -> None:
        """Make what was given what the era makes of it."""
        own = self.__dict__
        self._set_roles(own, shape)
        if own["read_deleted"] not in shape.read_deleted:
            self._set_read_deleted(own["read_deleted"])
        own["timestamp"] = _time_of(own["timestamp"])
        if not own["request_id"]:
            own["request_id"] = self._new_request_id()
        if not own.get("service_catalog", True):
            own["service_catalog"] = []
        if not shape.is_old and (overwrite or getattr(local.store, "context", None) is None):
            self.update_store()

    @property
    def _is_old(self) -> bool:
        return self._era in _OLD

    @staticmethod
    def _given(args: tuple[Any, ...], fields: dict[str, Any], shape: _Shape) -> dict[str, Any]:
        """Arguments by name, without those that nobody knows."""
        if len(args) > len(shape.order):
            raise TypeError(f"RequestContext() takes at most {len(shape.order)} arguments ({len(args)} given)")
        given = dict(zip(shape.order, args, strict=False))
        if twice := given.keys() & fields.keys():
            raise TypeError(f"RequestContext() got multiple values for {', '.join(sorted(twice))}")
        dropped = []
        for name, value in fields.items():
            if name in shape.known:
                given[name] = value
            elif name in _OTHER_NAMES:
                given.setdefault(_OTHER_NAMES[name], value)
            else:
                dropped.append(name)
        if dropped:
            LOG.warning("Arguments dropped when creating context: %s", {name: fields[name] for name in dropped})
        return given

    @staticmethod
    def _set_roles(own: dict[str, Any], shape: _Shape) -> None:
        for name in ("user_id", "project_id"):
            value = own[name]
            if type(value) is not str and value is not None:
                # Cactus passed the objects themselves.
                own[name] = getattr(value, "id", value)
        own["roles"] = roles = [*(own["roles"] or ())]
        admin = own["is_admin"]
        if admin is None:
            own["is_admin"] = admin = "admin" in [role.lower() for role in roles]
        if admin and not shape.is_old and "admin" not in roles:
            roles.append("admin")

    def _set_read_deleted(self, value: Any) -> None:
        if self._is_old:
            # What a later era wrote.
            self.read_deleted = value in ("yes", "only") if isinstance(value, str) else bool(value)
            return
        if value is None or isinstance(value, bool):
            value = "yes" if value else "no"
        if value not in ("no", "yes", "only"):
            raise ValueError(f"read_deleted can only be one of 'no', 'yes' or 'only', not {value!r}")
        self.read_deleted = value

    def _new_request_id(self) -> str:
        if self._is_old:
            return "".join(random.choices(f"{string.ascii_uppercase}{string.digits}-", k=20))
        return generate_request_id()

    # Names that other projects, or Cactus, had for the same.

    @property
    def user(self) -> Any:
        """``user_id``."""
        return self.user_id

    @property
    def project(self) -> Any:
        """``project_id``."""
        return self.project_id

    @property
    def tenant(self) -> Any:
        """``project_id``."""
        return self.project_id

    def update_store(self) -> None:
        """Make this the green thread's context."""
        local.store.context = self

    def to_dict(self) -> dict[str, Any]:
        """All of it, made of what JSON has; :meth:`from_dict` makes an equal context."""
        values = {name: getattr(self, name) for name in _FIELDS.get(self._era, _FIELDS["folsom"])}
        values["roles"] = [*self.roles]
        if self._era == "cactus":
            values["timestamp"] = self.timestamp.strftime(_WHOLE_SECONDS)
            del values["roles"]
            return {{"user_id": "user", "project_id": "project"}.get(name, name): values[name] for name in values}
        values["timestamp"] = primitives.strtime(self.timestamp)
        return values

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> RequestContext:
        """The context that :meth:`to_dict` took apart."""
        shape = _shape(compat.nova.era())
        if cls.__init__ is not RequestContext.__init__ or not values.keys() <= shape.names:
            return cls(**values)
        # One is made for each message, and keywords cost more than all the rest.
        context = cls.__new__(cls)
        context.__dict__ = shape.defaults | values
        context._complete(shape, True)
        return context

    def elevated(self, read_deleted: Any = None, overwrite: bool = False) -> RequestContext:
        """The same with the rights of an admin; the thread's context stays."""
        context = copy.copy(self)
        context.is_admin = True
        context.roles = [*self.roles]
        if not self._is_old and "admin" not in context.roles:
            context.roles.append("admin")
        if read_deleted is not None:
            context._set_read_deleted(read_deleted)
        if overwrite and not self._is_old:
            context.update_store()
        return context


def _time_of(value: Any) -> datetime:
    if not value:
        return timeutils.utcnow()
    if not isinstance(value, str):
        at: datetime = value
        return at
    at = datetime.fromisoformat(value)
    return at if at.tzinfo is None else timeutils.normalize_time(at)


def get_admin_context(read_deleted: Any = None) -> RequestContext:
    """A context that may do everything, of no user; the thread's stays if it has one."""
    return RequestContext(user_id=None, project_id=None, is_admin=True, read_deleted=read_deleted, overwrite=False)


def get_admin_context_no_warnings() -> RequestContext:
    """Like :func:`get_admin_context`."""
    return get_admin_context()


def is_user_context(context: Any) -> bool:
    """Return whether it is that of a user, who is no admin."""
    return bool(context) and not context.is_admin and bool(context.user_id and context.project_id)


def require_context(context: Any) -> None:
    """Refuse a context that is neither an admin's nor a user's.

    Raises:
        nova.exception.NotAuthorized: it is.
    """
    if not context.is_admin and not is_user_context(context):
        _refuse("NotAuthorized")


def require_admin_context(context: Any) -> None:
    """Refuse a context that is no admin's.

    Raises:
        nova.exception.AdminRequired: it is.
    """
    if not context.is_admin:
        _refuse("AdminRequired")


def authorize_project_context(context: Any, project_id: Any) -> None:
    """Refuse a user's context of another project.

    Raises:
        nova.exception.NotAuthorized: it is.
    """
    if is_user_context(context) and context.project_id != project_id:
        _refuse("NotAuthorized")


def authorize_user_context(context: Any, user_id: Any) -> None:
    """Refuse another user's context.

    Raises:
        nova.exception.NotAuthorized: it is.
    """
    if is_user_context(context) and context.user_id != user_id:
        _refuse("NotAuthorized")


def _refuse(name: str) -> None:
    from nova import exception

    raise getattr(exception, name)()
