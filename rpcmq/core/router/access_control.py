"""Access control: which identities a key may use, and what it may do. Unused without CURVE.

The transport says under which key a connection was authenticated. A link belongs to that key for all
its life. Each message that a key needs a right for is looked at here before anything is queued; the
decision is kept for each link and address, so that the next message to it costs one look-up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from hashlib import blake2b
from hmac import compare_digest
from typing import Any, TypeVar

from rpcmq.core.common.text import shortened
from rpcmq.core.common.token_bucket import TokenBucket
from rpcmq.core.router.actions import Action, Disconnect, Note
from rpcmq.core.router.controls import FREE
from rpcmq.core.router.key_formats import within_formats
from rpcmq.core.router.link import Handler, Link
from rpcmq.core.router.link_table import LinkTable
from rpcmq.core.router.rights import Key
from rpcmq.core.router.settings import Settings
from rpcmq.core.router.topics import Destination
from rpcmq.core.router.turns import ERROR_STEPS, Turns
from rpcmq.errors import Outcome
from rpcmq.wire import KEY, KIND_AT, LOW_FLAGS_AT, Address, Flag, Kind, address_of, body_of, control, parse, sequence_of

__all__ = ["Account", "Guard", "Permits", "account_row"]

#: Most addresses whose decisions one link caches.
_KEPT = 10_000
#: Metered kinds: an introduction costs both sides more than a call.
_METERED = (Kind.REQUEST, Kind.CAST, Kind.PUBLISH, Kind.INTRODUCE)
_REQUEST = int(Kind.REQUEST)
#: Kinds refused beyond the rate that their sender does not offer again.
_ASKED = (_REQUEST, int(Kind.INTRODUCE))
S = TypeVar("S", bound=Hashable)


class Account:
    """Usage and refusals of one key since the router's start."""

    def __init__(self, key: Key) -> None:
        self.key = key
        self.links = 0
        self.connects = 0
        #: Monotonic seconds of the last HELLO; None: never.
        self.last_seen: float | None = None
        self.refused: Counter[str] = Counter()
        #: Position of a right -> number of decisions it allowed.
        self.used: Counter[int] = Counter()
        self.bucket: TokenBucket | None = None
        #: Identities that its processes were introduced to: the router does not see their direct traffic.
        self.introduced: dict[str, None] = {}
        #: Number of known identities above which those that have left are forgotten.
        self.most_introduced = 256


class Permits:
    """Cached permissions of one link, by address as on the wire. Calls and casts are cached in ``Link.granted``."""

    __slots__ = ("account", "fanout", "publish", "throttled")

    def __init__(self, account: Account) -> None:
        self.account = account
        self.fanout: set[bytes] = set()
        self.publish: set[bytes] = set()
        #: Address -> the first of the casts to it that went beyond the rate: it must come again before
        #: later ones are taken, so that their order is kept.
        self.throttled: dict[bytes, int] = {}


class Guard:
    """Keys, their rights and limits.

    Args:
        settings: the limits of keys that name none of their own.
        links: to end those whose key is revoked.
        refused: counts refusals by what was refused.
        actions: where notes and disconnections go.
        handlers: by kind, without checks.
        secret: of the router; seals the handles of links.
    """

    def __init__(
        self,
        settings: Settings,
        links: LinkTable,
        refused: Counter[str],
        act: Callable[[Action], None],
        handlers: list[Handler],
        secret: bytes = b"",
    ) -> None:
        self._secret = secret
        #: Counter of the work that refusals cost.
        self.turns = Turns()
        self._settings = settings
        self._links = links
        self._refused = refused
        self._act = act
        self._accounts: dict[str, Account] = {}
        self._plain = handlers
        self._checked = self._table(handlers, False)
        self._checked_metered = self._table(handlers, True)
        self._plain_metered = list(handlers)
        for kind in _METERED:
            self._plain_metered[kind] = self._metered(handlers[kind])

    def __iter__(self) -> Iterator[Account]:
        return iter(self._accounts.values())

    # --- keys --------------------------------------------------------------------------------

    def authorise(self, now: float, keys: Iterable[Key]) -> None:
        """Set the authorised keys; links of all other keys end at once."""
        accounts: dict[str, Account] = {}
        narrowed: list[Account] = []
        for key in keys:
            account = self._accounts.get(key.public) or Account(key)
            if account.key.rights != key.rights:
                account.used.clear()
                if not set(account.key.rights) <= set(key.rights):
                    narrowed.append(account)
            account.key = key
            account.bucket = self._bucket(now, key, account.bucket)
            accounts[key.public] = account
        revoked = [a for public, a in self._accounts.items() if public not in accounts]
        self._accounts = accounts
        for account in (*revoked, *narrowed):
            self._tell_peers(account)
        for link in list(self._links):
            if link.permits is not None and (reason := self._lost_its_right(link, link.permits)):
                self.cut(now, link, reason)

    def _tell_peers(self, account: Account) -> None:
        """Tell processes with direct links to those of a key that lost rights to end these links."""
        body = {"url": "", "revoked": account.key.public}
        for link in self._links:
            # Any listening process may have been introduced by an earlier incarnation of the router.
            if link.identity in account.introduced or any(c.peer_url for c in link.consumers.values()):
                link.send(control(Kind.INTRODUCTION, body))
        account.introduced.clear()

    def introduced(self, one: Link, other: Link) -> None:
        """Record that the two may have a direct link from now on."""
        for link, peer in ((one, other), (other, one)):
            account: Account = link.permits.account
            if len(account.introduced) >= account.most_introduced:
                known = self._links.by_identity
                account.introduced = {each: None for each in account.introduced if known(each) is not None}
                account.most_introduced = max(256, 2 * len(account.introduced))
            account.introduced[peer.identity] = None

    def _bucket(self, now: float, key: Key, old: TokenBucket | None) -> TokenBucket | None:
        rate = key.messages_per_second
        if rate is None:
            rate = self._settings.messages_per_second
        if not rate:
            return None
        return old if old is not None and old.rate == rate else TokenBucket(rate, now)

    def _lost_its_right(self, link: Link, permits: Permits) -> str:
        """Return why ``link`` must end under the present keys; empty if it need not."""
        account = permits.account
        key = account.key
        if self._accounts.get(key.public) is not account:
            return f"its key {key.name!r} was revoked or has expired"
        self.attach(link, account)
        if not key.may_be(link.identity):
            return f"its key {key.name!r} may not be {link.identity!r} any more"
        for consumer in (*link.consumers.values(), *link.lapsed):
            address = consumer.topic.address._replace(server=consumer.server)
            for name in _served(address):
                if key.right_for("serve", address.exchange, name) is None:
                    return f"its key {key.name!r} may not serve {str(address)!r} any more"
        for exchange, pattern in link.patterns:
            if key.right_for("subscribe", exchange.decode(), pattern.decode()) is None:
                return f"its key {key.name!r} may not subscribe to {pattern.decode()!r} any more"
        return ""

    def cut(self, now: float, link: Link, reason: str) -> None:
        """End ``link`` and its connection."""
        if link.route is not None:
            self._act(Disconnect(link.route))
        self._refused["cut off"] += 1
        self._links.end(now, link, reason)

    # --- who may connect ---------------------------------------------------------------------

    def account_of(self, user: str) -> Account | None:
        """Return the usage record of the public key ``user``; None if it is not authorised."""
        return self._accounts.get(user)

    def problem(self, account: Account | None, identity: str) -> tuple[str, str] | None:
        """Return why a process with this key may not be ``identity``, as reason and sentence; None if it may."""
        if account is None:
            self._refused["key not authorised"] += 1
            return "key", "the key of this connection is not authorised (any more)"
        key = account.key
        if not key.may_be(identity):
            account.refused["identity"] += 1
            self._refused["identity of another key"] += 1
            text = f"key {key.name!r} may not be identity {identity!r}; its key file says which it may (identities)"
            self._act(Note("denied", text, key.name))
            return "key", text
        for link in self._links.of_identity(identity):
            if link.route is not None and link.permits is not None and link.permits.account is not account:
                account.refused["identity"] += 1
                owner = link.permits.account.key.name
                text = f"identity {identity!r} is in use by a live process with the key {owner!r}"
                return "identity-taken", text
        return None

    def seal(self, account: Account, handle: int) -> str:
        """Return the MAC in a link's token, by which a later incarnation of the router verifies its handle."""
        text = account.key.public.encode() + handle.to_bytes(8)
        return "." + blake2b(text, key=self._secret, digest_size=16).hexdigest()

    def sealed(self, account: Account, handle: int, token: object) -> bool:
        """Whether ``token`` was issued to this key for that handle, by any incarnation of the router."""
        # Text that is not ASCII cannot be encoded or compared, and is not one of our tokens.
        if not isinstance(token, str) or not token.isascii():
            return False
        return compare_digest(token[-33:].encode(), self.seal(account, handle).encode())

    def has_room(self, account: Account) -> bool:
        """Whether the key may have one more link."""
        most = account.key.max_links
        if account.links < (self._settings.max_links_per_key if most is None else most):
            return True
        account.refused["links"] += 1
        self._refused["links of a key"] += 1
        return False

    def attach(self, link: Link, account: Account) -> None:
        """Assign ``link`` to the key, and reset its cached permissions."""
        link.permits = Permits(account)
        key = account.key
        everything = next((number for number, right in enumerate(key.rights) if right.everything), None)
        if everything is not None:
            # A key with all rights needs no check of each message.
            account.used[everything] += 1
            link.granted = link.granted_casts = None
            link.handlers = self._plain if account.bucket is None else self._plain_metered
        else:
            link.granted, link.granted_casts = set(), set()
            link.handlers = self._checked if account.bucket is None else self._checked_metered
        if key.formats is not None:
            link.handlers = within_formats(link.handlers, key.formats, self._deny_format)

    def seen(self, now: float, link: Link) -> None:
        """Record that ``link`` is connected (again)."""
        if link.permits is not None:
            link.permits.account.connects += 1
            link.permits.account.last_seen = now

    def detach(self, link: Link) -> None:
        """``link`` has ended."""
        if link.permits is not None:
            link.permits.account.links -= 1

    # --- rights --------------------------------------------------------------------

    def _table(self, handlers: list[Handler], metered: bool) -> list[Handler]:
        table = list(handlers)
        table[Kind.PUBLISH] = self._publish(handlers[Kind.PUBLISH])
        rare = {Kind.REGISTER: "serve", Kind.DECLARE: "serve", Kind.SUBSCRIBE: "subscribe", Kind.INTRODUCE: "call"}
        for kind, verb in rare.items():
            table[kind] = self._rare(verb, handlers[kind])
        table[Kind.QUERY] = self._query(handlers[Kind.QUERY])
        if metered:
            for kind in _METERED:
                table[kind] = self._metered(table[kind])
        return table

    def may_send(self, link: Link, part: bytes, destination: Destination | None) -> bool:
        """Whether the link's key may send the call or cast ``part``; permission is cached for ``destination``."""
        if part[KIND_AT] == _REQUEST:
            verb, kept = "call", link.granted
        elif part[LOW_FLAGS_AT] & Flag.FANOUT:
            verb, kept = "fanout", None
            if (known := _block(part)) in link.permits.fanout:
                return True
        else:
            verb, kept = "cast", link.granted_casts
        if not self._decide(link, part, _block(part), verb):
            return False
        if kept is None:
            _keep(link.permits.fanout, known)
        elif destination is not None:
            _keep(kept, destination)
        return True

    def _publish(self, accept: Handler) -> Handler:
        def publish(now: float, link: Link, part: bytes) -> None:
            known: set[bytes] = link.permits.publish
            block = address_of(part)
            if block not in known:
                if not self._decide(link, part, block, "publish"):
                    return
                _keep(known, block)
            accept(now, link, part)

        return publish

    def _metered(self, accept: Handler) -> Handler:
        def metered(now: float, link: Link, part: bytes) -> None:
            if self._in_time(now, link, part):
                accept(now, link, part)

        return metered

    def _rare(self, verb: str, handler: Handler) -> Handler:
        def rare(now: float, link: Link, part: bytes) -> None:
            if self._decide(link, part, _block(part), verb):
                handler(now, link, part)

        return rare

    def _query(self, handler: Handler) -> Handler:
        def query(now: float, link: Link, part: bytes) -> None:
            view = str(body_of(part).get("what", "overview"))
            if view in FREE or self._allowed(link, part, "admin", "", (view,)):
                handler(now, link, part)

        return query

    def _decide(self, link: Link, part: bytes, block: bytes, verb: str) -> bool:
        """Whether the link's key has the right; if not, notify its process.

        Raises:
            ProtocolError: the address is malformed.
        """
        parse(part)
        address = Address.decode(block)
        # The server in an event's address is ignored.
        names = _served(address) if verb == "serve" else (_name(address),)
        if verb in ("publish", "subscribe"):
            names = (address.topic,)
        return self._allowed(link, part, verb, address.exchange, names)

    def _allowed(self, link: Link, part: bytes, verb: str, exchange: str, names: tuple[str, ...]) -> bool:
        permits: Permits = link.permits
        account = permits.account
        key = account.key
        for name in names:
            right = key.right_for(verb, exchange, name)
            if right is None:
                self._deny(link, part, account, verb, exchange, name)
                return False
            account.used[key.rights.index(right)] += 1
        return True

    def _deny(self, link: Link, part: bytes, account: Account, verb: str, exchange: str, name: str) -> None:
        self.turns.spent += ERROR_STEPS
        what = f"denied {verb}"
        self._refused[what] += 1
        link.counters[what] += 1
        account.refused[what] += 1
        name = shortened(name)
        shown = f"{exchange}/{name}" if exchange else name
        text = f"key {account.key.name!r} has no right to {verb} {shown!r}"
        self._act(Note("denied", f"{link.identity}: {text}", link.identity))
        details = {"verb": verb, "topic": name, "exchange": exchange, "key": account.key.name}
        body = {"outcome": Outcome.DENIED, "text": text, "details": details}
        link.send(control(Kind.ERROR, body, key=part[KEY]))

    def _deny_format(self, link: Link, part: bytes, form: str, what: str) -> str:
        account: Account = link.permits.account
        self.turns.spent += ERROR_STEPS
        counted = f"denied {form}"
        self._refused[counted] += 1
        link.counters[counted] += 1
        account.refused[counted] += 1
        text = f"key {account.key.name!r} {what}; its key file says which formats it may send (formats)"
        self._act(Note("denied", f"{link.identity}: {text}", link.identity))
        if part[KIND_AT] in (Kind.REQUEST, Kind.CAST, Kind.PUBLISH):
            # As where a consumer does not accept it: the sender encodes it in another format, if it can.
            details = {"accepts": account.key.formats, "key": account.key.name}
            body = {"outcome": Outcome.PROTOCOL, "text": text, "details": details}
            link.send(control(Kind.ERROR, body, key=part[KEY]))
        return text

    # --- rate limits ----------------------------------------------------------------------------

    def _in_time(self, now: float, link: Link, part: bytes) -> bool:
        permits: Permits = link.permits
        account = permits.account
        bucket = account.bucket
        assert bucket is not None
        if part[KIND_AT] in _ASKED or part[LOW_FLAGS_AT] & Flag.CONFIRM:
            wait = bucket.take(now)
            if wait:
                self._too_fast(link, part, account, wait)
            return not wait
        block = _block(part)
        first = permits.throttled.get(block)
        if first is not None:
            if sequence_of(part) != first or not part[LOW_FLAGS_AT] & Flag.RESENT:
                self._too_fast(link, part, account, 1.0 / bucket.rate)
                return False
            del permits.throttled[block]
        wait = bucket.take(now)
        if not wait:
            return True
        if len(permits.throttled) < _KEPT:
            # Order is not kept for casts to more addresses at a time than this.
            permits.throttled[block] = sequence_of(part)
        self._too_fast(link, part, account, wait)
        return False

    def _too_fast(self, link: Link, part: bytes, account: Account, wait: float) -> None:
        self.turns.spent += ERROR_STEPS
        self._refused["too fast"] += 1
        link.counters["too fast"] += 1
        account.refused["too fast"] += 1
        assert account.bucket is not None
        rate = f"{account.bucket.rate:g}"
        text = f"key {account.key.name!r} sends more than {rate} messages a second (messages_per_second = {rate})"
        details = {"limit": "messages_per_second", "retry_after": round(wait, 3), "key": account.key.name}
        body = {"outcome": Outcome.OVERLOADED, "text": text, "details": details}
        link.send(control(Kind.ERROR, body, key=part[KEY]))


def _keep(known: set[S], what: S) -> None:
    """Cache a permission, within a bound."""
    if len(known) >= _KEPT:
        known.clear()
    known.add(what)


def _block(part: bytes) -> bytes:
    return address_of(part)


def _name(address: Address) -> str:
    return f"{address.topic}.{address.server}" if address.server else address.topic


def _served(address: Address) -> tuple[str, ...]:
    """Return the topics a server consumes: its own, and the shared one."""
    return (address.topic, _name(address)) if address.server else (address.topic,)


def account_row(account: Account, now: float) -> dict[str, Any]:
    """A key, its use and what it was refused, as plain data."""
    key = account.key
    rights: list[Mapping[str, Any]] = [
        {
            "verbs": sorted(right.verbs),
            "exchanges": list(right.exchanges),
            "topics": list(right.topics),
            "used": account.used[number],
        }
        for number, right in enumerate(key.rights)
    ]
    return {
        "name": key.name,
        "public": key.public,
        "owner": key.owner,
        "expires": key.expires,
        "links": account.links,
        "connects": account.connects,
        "last_seen_seconds": None if account.last_seen is None else round(now - account.last_seen, 3),
        "refused": dict(account.refused),
        "rights": rights,
    }
