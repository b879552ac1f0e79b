"""nova.rpc.context: the context of Folsom, and the one of the running green thread."""

from __future__ import annotations

import copy
import pickle

import gevent
import pytest


def test_keywords_are_attributes(at):
    context = at("folsom")("nova.rpc.common").CommonRpcContext(user="ada", roles=["member"])
    assert (context.user, context.values) == ("ada", {"user": "ada", "roles": ["member"]})
    assert not hasattr(context, "project")
    with pytest.raises(AttributeError, match="project"):
        _ = context.project


def test_dict_and_copies_share_nothing(at):
    common = at("folsom")("nova.rpc.common")

    class Ours(common.CommonRpcContext):  # type: ignore[misc, name-defined]
        pass

    context = Ours(roles=["member"])
    for other in (Ours.from_dict(context.to_dict()), context.deepcopy(), copy.deepcopy(context)):
        assert type(other) is Ours and other.to_dict() == {"roles": ["member"]}
        other.roles.append("more")
    context.to_dict()["roles"].append("more")
    assert context.roles == ["member"]


def test_copy_and_pickle_do_not_recurse(at):
    context = at("folsom")("nova.rpc.common").CommonRpcContext(user="ada")
    assert copy.copy(context).user == "ada"
    assert pickle.loads(pickle.dumps(context)).user == "ada"


def test_one_without_values_has_no_attributes(at):
    cls = at("folsom")("nova.rpc.common").CommonRpcContext
    # So copy and pickle make it at first.
    assert not hasattr(cls.__new__(cls), "user")


def test_elevated(at):
    context = at("folsom")("nova.rpc.common").CommonRpcContext(is_admin=False, roles=["member"], read_deleted="no")
    admin = context.elevated(read_deleted="yes")
    assert (admin.is_admin, admin.roles, admin.read_deleted) == (True, ["member", "admin"], "yes")
    assert admin.elevated().roles == ["member", "admin"]
    assert admin.elevated().read_deleted == "yes"
    assert context.to_dict() == {"is_admin": False, "roles": ["member"], "read_deleted": "no"}


@pytest.mark.parametrize(
    ("era", "place"),
    [("essex", "nova.local"), ("folsom", "nova.openstack.common.local"), ("havana", "nova.openstack.common.local")],
)
@pytest.mark.parametrize("loaded", [True, False])
def test_store_is_that_of_the_green_thread(at, era, place, loaded):
    load = at(era)
    common = load("nova.rpc.common")
    if loaded:
        load(place)
    context = common.CommonRpcContext(user="ada")
    context.update_store()
    store = load(place).store
    assert store.context is context
    assert gevent.spawn(hasattr, store, "context").get(timeout=20) is False
    common.clear_store()
    assert not hasattr(store, "context")
    common.clear_store()
