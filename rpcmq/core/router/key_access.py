"""Access control by keys: which key may connect as whom, for how long, and with which links. Only with CURVE.

A link belongs to one key for all its life. What its messages may do is decided in
:mod:`rpcmq.core.router.right_checks`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from hmac import compare_digest
from typing import NoReturn

from rpcmq.core.common.token_bucket import TokenBucket
from rpcmq.core.router.access_control import AccessControl, Admission, Refusal
from rpcmq.core.router.actions import Action, Disconnect, LogEvent
from rpcmq.core.router.link_table import LinkTable
from rpcmq.core.router.model import Destination, Link
from rpcmq.core.router.permissions import KeyUsage, Permissions
from rpcmq.core.router.right_checks import RightChecks, registered_names
from rpcmq.core.router.rights import Key
from rpcmq.core.router.settings import Settings
from rpcmq.wire import origin_of
from rpcmq.wire.bodies import MESH_TYPE, IntroductionBody

__all__ = ["KeyAccessControl"]

#: Characters at the end of a token that sign the origin: a dot and a digest.
_SIGNATURE_LENGTH = 33


class KeyAccessControl(AccessControl):
    """The authorized keys, their rights and limits.

    Args:
        settings: the limits of keys that name none of their own.
        links: to end those whose key is revoked.
        refused: counts refusals by what was refused.
        act: takes notes and disconnections.
        checks: decide about messages.
        secrets: sign the origins of links: the first does, and what any has signed is believed.
    """

    def __init__(
        self,
        settings: Settings,
        links: LinkTable,
        refused: Counter[str],
        act: Callable[[Action], None],
        checks: RightChecks,
        secrets: Sequence[bytes] = (b"",),
    ) -> None:
        self._settings = settings
        self._links = links
        self._refused = refused
        self._act = act
        self._checks = checks
        self._secrets = secrets
        self._usages: dict[str, KeyUsage] = {}

    def knows_router(self, public: str) -> bool:
        """Return whether ``public`` is an authorised key with the right ``mesh``, which other routers have."""
        usage = self._usages.get(public)
        return usage is not None and usage.key.is_router

    def usages(self) -> list[KeyUsage]:
        """Return the authorized keys and their use."""
        return list(self._usages.values())

    # --- keys --------------------------------------------------------------------------------

    def set_authorized_keys(self, now: float, keys: Iterable[Key]) -> None:
        """Let these keys connect from now on, and no others: links of the rest end at once."""
        usages: dict[str, KeyUsage] = {}
        narrowed: list[KeyUsage] = []
        changed: set[str] = set()
        for key in keys:
            usage = self._usages.get(key.public) or KeyUsage(key)
            if usage.key.rights != key.rights:
                usage.used.clear()
                changed.add(key.public)
                if not set(usage.key.rights) <= set(key.rights):
                    narrowed.append(usage)
            usage.key = key
            usage.bucket = self._bucket(now, key, usage.bucket)
            usages[key.public] = usage
        revoked = [usage for public, usage in self._usages.items() if public not in usages]
        self._usages = usages
        for usage in (*revoked, *narrowed):
            self._tell_peers(usage)
        for link in list(self._links):
            if link.permissions is None:
                continue
            reason = self._revocation_reason(link, link.permissions.usage)
            if not reason and link.queue_type == MESH_TYPE and link.permissions.usage.key.public in changed:
                reason = "the rights of its key have changed"  # it comes back, and has those
            if reason:
                self._end_link(now, link, reason)

    def _bucket(self, now: float, key: Key, old: TokenBucket | None) -> TokenBucket | None:
        rate = key.messages_per_second
        if rate is None:
            rate = self._settings.messages_per_second
        if not rate:
            return None
        return old if old is not None and old.rate == rate else TokenBucket(rate, now)

    def _tell_peers(self, usage: KeyUsage) -> None:
        """Have processes end their direct links with those of a key that has lost rights."""
        revoked = IntroductionBody(revoked=usage.key.public).message()
        for link in self._links:
            # Any listening process may have been introduced by an earlier life of the router.
            if link.queue_type == MESH_TYPE:
                # Whom it was introduced to there, that router knows.
                link.send(revoked)
            elif link.identity in usage.introduced or any(c.peer_url for c in link.consumers.values()):
                link.send(revoked)
        usage.introduced.clear()

    def _revocation_reason(self, link: Link, usage: KeyUsage) -> str:
        """Return why ``link`` must end under the present keys; empty: it need not."""
        key = usage.key
        if self._usages.get(key.public) is not usage:
            return f"its key {key.name!r} was revoked or has expired"
        self._restrict(link, usage)
        if key.is_router != (link.queue_type == MESH_TYPE):
            return f"its key {key.name!r} is {'a router' if key.is_router else 'a process'}'s now"
        if not key.may_be(link.identity):
            return f"its key {key.name!r} may not be {link.identity!r} any more"
        if key.is_router:
            return ""  # it consumes and subscribes for its processes, and those were asked
        for consumer in (*link.consumers.values(), *link.lapsed_consumers):
            address = consumer.topic.address._replace(server=consumer.server)
            for name in registered_names(address):
                if key.right_for("serve", address.exchange, name) is None:
                    return f"its key {key.name!r} may not serve {str(address)!r} any more"
        for exchange, pattern in link.patterns:
            if key.right_for("subscribe", exchange.decode(), pattern.decode()) is None:
                return f"its key {key.name!r} may not subscribe to {pattern.decode()!r} any more"
        return ""

    def _end_link(self, now: float, link: Link, reason: str) -> None:
        """End ``link`` and its connection."""
        if link.route is not None:
            self._act(Disconnect(link.route))
        self._refused["cut off"] += 1
        self._links.end(now, link, reason)

    # --- who may connect ---------------------------------------------------------------------

    def admit(self, user: str, identity: str) -> Admission:
        """Check whether the key may have that identity, and no process of another key has it."""
        usage = self._usages.get(user)
        if usage is None:
            self._refused["key not authorised"] += 1
            raise Refusal("key", "the key of this connection is not authorised (any more)")
        key = usage.key
        if not key.may_be(identity):
            usage.refused["identity"] += 1
            self._refused["identity of another key"] += 1
            text = f"key {key.name!r} may not be identity {identity!r}; its key file says which it may (identities)"
            self._act(LogEvent("denied", text, key.name))
            raise Refusal("key", text)
        for link in self._links.of_identity(identity):
            if link.route is not None and link.permissions is not None and link.permissions.usage is not usage:
                usage.refused["identity"] += 1
                owner = link.permissions.usage.key.name
                raise Refusal(
                    "identity-taken", f"identity {identity!r} is in use by a live process with the key {owner!r}"
                )
        return _KeyAdmission(self, usage)

    def check_room(self, usage: KeyUsage) -> None:
        """Check whether the key may have one more link.

        Raises:
            Refusal: it has as many as it may.
        """
        most, setting = usage.key.max_links, "max_links in its key file"
        if most is None:
            most, setting = self._settings.max_links_per_key, "security.max_links_per_key"
        if usage.links >= most:
            usage.refused["links"] += 1
            self._refused["links of a key"] += 1
            raise Refusal("too-many-links", f"key {usage.key.name!r}: link limit reached ({setting} = {most})")

    def check_router(self, usage: KeyUsage, router_id: int) -> None:
        """Check whether the key is that of the router ``router_id``: one key, one id.

        Raises:
            Refusal: it is no router's; or that id is another key's; or it is linked with another id.
        """
        name = usage.key.name
        other = next((o for o in self._usages.values() if o is not usage and o.router_id == router_id), None)
        if not usage.key.is_router:
            self._refuse(usage, "router", f"key {name!r} is no router's: its file has no right 'mesh'")
        if other is not None:
            self._refuse(usage, "router", f"router id {router_id} is that of the key {other.key.name!r}, not {name!r}")
        if usage.links and usage.router_id != router_id:
            text = f"key {name!r} is that of the router with the id {usage.router_id}, which is linked, not {router_id}"
            self._refuse(usage, "router", f"{text}; each router needs a key of its own")
        usage.router_id = router_id

    def check_process(self, usage: KeyUsage) -> None:
        """Check whether the key may be a process's.

        Raises:
            Refusal: it is a router's.
        """
        if usage.key.is_router:
            self._refuse(usage, "process", f"key {usage.key.name!r} is a router's: no process may use it")

    def _refuse(self, usage: KeyUsage, what: str, text: str) -> NoReturn:
        usage.refused[what] += 1
        self._refused[f"{what} with a wrong key"] += 1
        self._act(LogEvent("denied", text, usage.key.name))
        raise Refusal("key", text)

    def sign_origin(self, usage: KeyUsage, origin: bytes) -> str:
        """Return the MAC in a link's token, by which a later life of a router verifies its origin."""
        return _signature(usage, origin, self._secrets[0])

    def verify_origin(self, usage: KeyUsage, origin: bytes, token: object) -> bool:
        """Return whether ``token`` was issued to this key for that origin, by any router with one of the secrets."""
        # Text that is not ASCII cannot be encoded or compared, and is not one of our tokens.
        if not isinstance(token, str) or not token.isascii():
            return False
        given = token[-_SIGNATURE_LENGTH:].encode()
        return any(compare_digest(given, _signature(usage, origin, secret).encode()) for secret in self._secrets)

    # --- links -------------------------------------------------------------------------------

    def attach(self, link: Link, usage: KeyUsage) -> None:
        """Let ``link``, which is new, belong to the key."""
        link.token += self.sign_origin(usage, link.origin)
        usage.links += 1
        self._restrict(link, usage)

    def _restrict(self, link: Link, usage: KeyUsage) -> None:
        """Decide anew what ``link`` may do."""
        link.permissions = Permissions(usage)
        if link.queue_type == MESH_TYPE:
            return  # the messages of routers are other ones: rpcmq.core.router.mesh.limits
        key = usage.key
        everything = next((number for number, right in enumerate(key.rights) if right.everything), None)
        if everything is not None:
            # A key with all rights needs no check of each message.
            usage.used[everything] += 1
            link.allowed_calls = link.allowed_casts = None
        else:
            link.allowed_calls, link.allowed_casts = set(), set()
        link.handlers = self._checks.handlers(usage, everything is None)

    def connected(self, now: float, link: Link) -> None:
        """Note when the key was used."""
        if link.permissions is not None:
            link.permissions.usage.connects += 1
            link.permissions.usage.last_seen = now

    def ended(self, link: Link) -> None:
        """Count one link of the key less."""
        if link.permissions is not None:
            link.permissions.usage.links -= 1

    def may_send(self, link: Link, message: bytes, destination: Destination | None) -> bool:
        """Return whether the key has the right to send ``message``; the link remembers a yes."""
        return self._checks.may_send(link, message, destination)

    def introduced(self, one: Link, other: Link) -> None:
        """Remember of either key whom it was introduced to."""
        for link, peer in ((one, other), (other, one)):
            if link.permissions is None:
                continue
            usage = link.permissions.usage
            if len(usage.introduced) >= usage.most_introduced:
                known = self._links.of_identity
                usage.introduced = {each: None for each in usage.introduced if any(known(each))}
                usage.most_introduced = max(256, 2 * len(usage.introduced))
            usage.introduced[peer.identity] = None


class _KeyAdmission(Admission):
    """A process whose key may have the identity."""

    def __init__(self, access: KeyAccessControl, usage: KeyUsage) -> None:
        self._access = access
        self._usage = usage

    def owns(self, link: Link) -> bool:
        return link.permissions is None or link.permissions.usage is self._usage

    def check_room(self) -> None:
        self._access.check_room(self._usage)

    def check_process(self) -> None:
        self._access.check_process(self._usage)

    def check_router(self, router_id: int) -> None:
        self._access.check_router(self._usage, router_id)

    def may_keep_handle(self, router_id: int, handle: int, token: object) -> bool:
        # With another process's handle, casts could be forged in its name.
        return self._access.verify_origin(self._usage, origin_of(router_id, handle), token)

    def attach(self, link: Link) -> None:
        self._access.attach(link, self._usage)


def _signature(usage: KeyUsage, origin: bytes, secret: bytes) -> str:
    return "." + blake2b(usage.key.public.encode() + origin, key=secret, digest_size=16).hexdigest()
