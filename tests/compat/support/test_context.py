from __future__ import annotations

import copy
import json
from datetime import datetime
from typing import Any

import gevent
import pytest

from compat.nova.eras import ERAS

AT = datetime(2012, 3, 4, 5, 6, 7, 8)
CACTUS = {"user", "project", "is_admin", "read_deleted", "remote_address", "timestamp", "request_id"}
ESSEX = CACTUS - {"user", "project"} | {"user_id", "project_id", "roles", "auth_token"}
FOLSOM = ESSEX | {"quota_class", "user_name", "project_name", "service_catalog", "instance_lock_checked"}
KEYS = {"cactus": CACTUS, "diablo": ESSEX | {"strategy"}, "essex": ESSEX, "folsom": FOLSOM}

# What each era took by position, after user and project.
POSITIONS: dict[str, tuple[Any, ...]] = {
    "cactus": (False, True, "10.0.0.1", AT, "req-1"),
    "diablo": (False, True, ["r"], "10.0.0.1", AT, "req-1", "token", "keystone"),
    "essex": (False, "yes", ["r"], "10.0.0.1", AT, "req-1", "token", True),
    "folsom": (False, "yes", ["r"], "10.0.0.1", AT, "req-1", "token", True, "gold", "name", "pname",
        [{"type": "volume"}], True),
}  # fmt: skip


@pytest.mark.parametrize("era", ERAS)
def test_the_keys_of_each_era(stand_in, era):
    context = stand_in(era)("nova.context").RequestContext("u", "p")
    assert set(context.to_dict()) == KEYS.get(era, FOLSOM)


@pytest.mark.parametrize("era", ERAS)
def test_arguments_by_position(stand_in, era):
    given = POSITIONS.get(era, POSITIONS["folsom"])
    context = stand_in(era)("nova.context").RequestContext("u", "p", *given)
    values = context.to_dict()
    user, project = ("user", "project") if era == "cactus" else ("user_id", "project_id")
    assert (values[user], values[project], values["remote_address"], values["request_id"]) == (
        "u",
        "p",
        "10.0.0.1",
        "req-1",
    )
    assert context.timestamp == AT
    assert values["timestamp"] == ("2012-03-04T05:06:07Z" if era == "cactus" else "2012-03-04T05:06:07.000008")
    if era not in ("cactus", "diablo", "essex"):
        assert (values["quota_class"], values["instance_lock_checked"]) == ("gold", True)
        assert values["service_catalog"] == [{"type": "volume"}]


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("admin", [True, False])
def test_the_receiver_has_what_the_sender_had(stand_in, era, admin):
    context = stand_in(era)("nova.context")
    sent = context.RequestContext("u", "p", is_admin=admin).to_dict()
    assert context.RequestContext.from_dict(json.loads(json.dumps(sent))).to_dict() == sent


@pytest.mark.parametrize("sender", ["cactus", "diablo", "essex", "havana"])
@pytest.mark.parametrize("receiver", ["cactus", "diablo", "essex", "havana"])
def test_two_eras_understand_each_other(monkeypatch, load, sender, receiver):
    import compat.nova

    context = load("nova.context")
    monkeypatch.setattr(compat.nova, "era", lambda: sender)
    sent = context.RequestContext("u", "p", is_admin=True, read_deleted=sender in ("cactus", "diablo") or "yes")
    monkeypatch.setattr(compat.nova, "era", lambda: receiver)
    got = context.RequestContext.from_dict(sent.to_dict())
    assert (got.user_id, got.project_id, got.is_admin, got.request_id) == ("u", "p", True, sent.request_id)
    assert got.read_deleted == (True if receiver in ("cactus", "diablo") else "yes")


def test_cactus_takes_objects_and_names(stand_in):
    class User:
        id = "u"

    context = stand_in("cactus")("nova.context").RequestContext(user=User(), project="p")
    assert (context.user, context.user_id, context.project, context.to_dict()["user"]) == ("u", "u", "p", "u")


def test_read_deleted(stand_in):
    context = stand_in("essex")("nova.context")
    assert context.RequestContext("u", "p").read_deleted == "no"
    assert context.RequestContext("u", "p", read_deleted="only").read_deleted == "only"
    with pytest.raises(ValueError, match="'no', 'yes' or 'only'"):
        context.RequestContext("u", "p", read_deleted="maybe")


def test_read_deleted_to_diablo(stand_in):
    context = stand_in("diablo")("nova.context")
    assert context.RequestContext("u", "p").read_deleted is False
    assert context.get_admin_context(read_deleted=True).read_deleted is True


def test_unknown_keywords_are_dropped_with_a_warning(stand_in, caplog):
    context = stand_in("essex")("nova.context").RequestContext("u", "p", surprise=1)
    assert "surprise" in caplog.text and not hasattr(context, "surprise")


def test_too_many_arguments(stand_in):
    RequestContext = stand_in("essex")("nova.context").RequestContext
    with pytest.raises(TypeError, match="at most"):
        RequestContext(*range(20))
    with pytest.raises(TypeError, match="multiple values"):
        RequestContext("u", user_id="u")


def test_roles(stand_in):
    RequestContext = stand_in("essex")("nova.context").RequestContext
    assert RequestContext("u", "p", roles=["Admin"]).is_admin is True
    assert RequestContext("u", "p", is_admin=True).roles == ["admin"]
    roles = ["member"]
    assert RequestContext("u", "p", roles=roles).is_admin is False and roles == ["member"]


@pytest.mark.parametrize("era", ERAS)
def test_elevated(stand_in, era):
    context = stand_in(era)("nova.context").RequestContext("u", "p")
    above = context.elevated()
    assert (above.is_admin, above.user_id, above.request_id) == (True, "u", context.request_id)
    assert (context.is_admin, "admin" in context.roles) == (False, False)
    assert ("admin" in above.roles) is (era not in ("cactus", "diablo"))
    assert context.elevated(read_deleted="yes" if era not in ("cactus", "diablo") else True).read_deleted in (
        "yes",
        True,
    )


def test_the_green_threads_context(stand_in):
    load = stand_in("essex")
    context, local = load("nova.context"), load("nova.local")
    first = context.RequestContext("u", "p")
    assert local.store.context is first
    admin = context.get_admin_context()
    assert local.store.context is first and admin.is_admin and admin.user_id is None
    second = context.RequestContext("u", "p", overwrite=False)
    assert local.store.context is first
    second.update_store()
    assert local.store.context is second
    assert gevent.spawn(lambda: getattr(local.store, "context", None)).get() is None


def test_a_context_of_nobody_is_gone(stand_in):
    load = stand_in("essex")
    context, local = load("nova.context"), load("nova.local")
    context.RequestContext("u", "p")
    assert local.store.context is None
    assert context.RequestContext("u", "p", overwrite=False).user_id == "u"


def test_before_essex_no_thread_had_a_context(stand_in):
    load = stand_in("diablo")
    kept = load("nova.context").RequestContext("u", "p")
    assert not hasattr(load("nova.local").store, "context") and kept


def test_copies(stand_in):
    context = stand_in("folsom")("nova.context").RequestContext("u", "p", service_catalog=[{"a": 1}])
    assert copy.copy(context).to_dict() == copy.deepcopy(context).to_dict() == context.to_dict()


def test_who_may(stand_in):
    load = stand_in("essex")
    context, exception = load("nova.context"), load("nova.exception")
    user = context.RequestContext("u", "p")
    context.require_context(user)
    context.authorize_project_context(user, "p")
    with pytest.raises(exception.AdminRequired):
        context.require_admin_context(user)
    with pytest.raises(exception.NotAuthorized):
        context.authorize_project_context(user, "other")
    with pytest.raises(exception.NotAuthorized):
        context.authorize_user_context(user, "other")
    with pytest.raises(exception.NotAuthorized):
        context.require_context(context.RequestContext(None, None))


def test_the_context_of_other_projects(load):
    context = load("nova.openstack.common.context")
    made = context.RequestContext(user="u", tenant="t")
    assert made.to_dict()["tenant"] == "t" and made.request_id.startswith("req-")
    assert context.get_admin_context().is_admin
    assert context.get_context_from_function_and_args(print, (1, made), {}) is made
