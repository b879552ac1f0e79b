"""The settings of a router."""

from __future__ import annotations

from dataclasses import dataclass, field

from rpcmq.config.nodes import NODE_TABLES, NodeTable
from rpcmq.config.peers import PEER_TABLES, Peer
from rpcmq.config.values import (
    BYTES,
    COUNT,
    DAY,
    DOMAINS,
    FLAG,
    GIB,
    HOSTS,
    KIB,
    LISTEN_URL,
    LOG_LEVELS,
    MIB,
    NAME,
    OPTIONAL_ADDRESS,
    OPTIONAL_PATH,
    RATE,
    STORE_URL,
    URLS,
    choice,
    integer,
    number,
    seconds,
    setting,
    size,
)

__all__ = ["ASCENDING", "RouterConfig"]


@dataclass(frozen=True)
class RouterSettings:
    """The daemon itself."""

    listen: str = setting("tcp://127.0.0.1:7700", LISTEN_URL, "endpoint that serves every link")
    name: str = setting("", NAME, "name in logs and views; empty: the host's name")
    id: int = setting(
        0,
        integer(0, 2**32 - 1),
        "number of this router, unique in its mesh; 0: made from its name and endpoint",
    )
    http: str = setting("", OPTIONAL_ADDRESS, "address of /healthz and the JSON views; empty: off")
    http_hosts: tuple[str, ...] = setting(
        (), HOSTS, "names in the Host header that router.http answers to, beside addresses and this machine's name"
    )
    log_level: str = setting("info", LOG_LEVELS, "least severe log records that are written", live=True)
    log_format: str = setting("text", choice("text", "json"), "form of a log record")
    max_bytes: int = setting(
        0, size(0), "bytes held for all peers together; 0: half of the memory of the host or control group", live=True
    )
    drain_seconds: float = setting(
        30.0, seconds(0, DAY), "seconds that SIGTERM waits for what is running to finish", live=True
    )
    recovery_seconds: float = setting(
        2.5, seconds(0, 3600), "seconds after a start in which links come back before casts and events are routed"
    )
    io_threads: int = setting(1, integer(1, 64), "ZeroMQ I/O threads")
    cpu: int = setting(-1, integer(-1, 65535), "core on which the router's process runs; -1: on any")
    insecure: bool = setting(False, FLAG, "listen beyond this host without keys: anybody there can do anything")


@dataclass(frozen=True)
class LinkSettings:
    """Links of processes: their liveness, and their inbound and outbound queues."""

    heartbeat_seconds: float = setting(5.0, seconds(0.05, 3600), "seconds between two heartbeats")
    unresponsive_seconds: float = setting(
        12.0, seconds(0.1, DAY), "seconds of silence after which a link gets no new work", live=True
    )
    lost_seconds: float = setting(60.0, seconds(0.1, DAY), "seconds of silence after which a link is lost")
    resume_seconds: float = setting(30.0, seconds(0, DAY), "seconds in which an identity may resume", live=True)
    consumer_grace_seconds: float = setting(
        0.5,
        seconds(0, 3600),
        "seconds that a consumer may be away before its work is taken from it",
        live=True,
    )
    handshake_seconds: float = setting(10.0, seconds(0.1, 3600), "seconds that a new link has to say HELLO")
    max_links: int = setting(100_000, COUNT, "links at a time", live=True)
    max_handshakes: int = setting(
        1_000, COUNT, "connections at a time that have not said HELLO; beyond it the oldest are cut", live=True
    )
    inbox_max_bytes: int = setting(
        128 * MIB, BYTES, "received bytes of one link waiting because its messages cost much work", live=True
    )
    max_bytes: int = setting(256 * MIB, BYTES, "bytes of calls and casts of one link that have not ended", live=True)
    outbox_max_bytes: int = setting(
        256 * MIB, BYTES, "bytes waiting to be sent to one link or acknowledged by it", live=True
    )
    outbox_max_messages: int = setting(100_000, COUNT, "messages waiting to be sent to one link", live=True)


@dataclass(frozen=True)
class QueueSettings:
    """Calls and casts that wait for a consumer's credit; and the server of work queues, whose items are on disk."""

    max_messages: int = setting(100_000, COUNT, "messages waiting in one topic", live=True)
    max_bytes: int = setting(256 * MIB, BYTES, "bytes waiting in one topic", live=True)
    dir: str = setting("", OPTIONAL_PATH, "folder of the queue server, with its items in a file; empty: no work queues")
    store: str = setting(
        "", STORE_URL, "PostgreSQL database with the items of work queues, instead of a file in queue.dir"
    )
    orphan_seconds: float = setting(
        60.0, seconds(0, DAY), "seconds for which a queue server whose router has died waits for its next life"
    )

    takeover_seconds: float = setting(
        10.0, seconds(1, DAY), "seconds after which other routers work at the items of one that is gone, in queue.store"
    )

    @property
    def has_server(self) -> bool:
        """Whether the router has a queue server."""
        return bool(self.dir or self.store)


@dataclass(frozen=True)
class MailboxSettings:
    """Casts kept while their consumer is away."""

    max_seconds: float = setting(
        600.0, seconds(0, 30 * DAY), "seconds that a cast is kept while its consumer is away", live=True
    )
    unclaimed_seconds: float = setting(
        60.0, seconds(0, 30 * DAY), "seconds that a cast is kept for a topic that was never consumed", live=True
    )
    max_unclaimed_topics: int = setting(10_000, COUNT, "never-consumed topics that may hold messages", live=True)


@dataclass(frozen=True)
class TopicSettings:
    """The table of topics."""

    max_topics: int = setting(1_000_000, COUNT, "topics known at a time", live=True)


@dataclass(frozen=True)
class MessageSettings:
    """Any message."""

    max_bytes: int = setting(64 * MIB, size(KIB, GIB), "bytes of one message")
    max_ttl_seconds: float = setting(DAY, seconds(1, 30 * DAY), "most seconds that a message may live")


@dataclass(frozen=True)
class CallSettings:
    """Calls under way."""

    max_in_flight: int = setting(1_000_000, COUNT, "calls not yet ended, in all", live=True)
    default_timeout_seconds: float = setting(60.0, seconds(0.001, DAY), "seconds for a call without ttl")


@dataclass(frozen=True)
class HedgeSettings:
    """Calls that several consumers may have, the first answer of which counts: docs/guides/first-response.md."""

    budget: float = setting(
        0.05, number(0, 7), "deliveries beside the first for each call of a method, on average; 0: none", live=True
    )
    burst: int = setting(100, COUNT, "most of them that a method may have saved up", live=True)
    unbounded: tuple[str, ...] = setting(
        (), DOMAINS, "topics that hedge.budget does not bound, as patterns like 'fetch.#'", live=True
    )
    policy_file: str = setting(
        "", OPTIONAL_PATH, "latency policy, from `rpcmq latency policy`, for hedge_after='p95'; empty: none", live=True
    )
    sample: float = setting(
        0.01, number(0, 1), "part of these calls whose second result is compared with the first", live=True
    )


@dataclass(frozen=True)
class PubSubSettings:
    """Bounds for one subscriber; beyond them a slow one loses its own messages."""

    max_messages: int = setting(10_000, COUNT, "messages waiting for one subscriber", live=True)
    max_bytes: int = setting(16 * MIB, BYTES, "bytes waiting for one subscriber", live=True)
    max_patterns: int = setting(1_000, COUNT, "patterns of one subscriber", live=True)
    max_pattern_states: int = setting(
        10_000, COUNT, "states that one subscriber's patterns can add to the match of an event", live=True
    )


@dataclass(frozen=True)
class StatsSettings:
    """The router's own table of latencies."""

    max_methods: int = setting(10_000, COUNT, "methods of topics that are counted one by one")


@dataclass(frozen=True)
class DispatchLogSettings:
    """A record of each message that has ended, in files: docs/dispatch-log.md."""

    directory: str = setting("", OPTIONAL_PATH, "folder of the dispatch log; empty: off", flag="--dispatch-log")
    segment_records: int = setting(
        50_000, integer(1000, 5_000_000), "records after which a file is complete", live=True
    )
    segment_seconds: float = setting(
        10.0, seconds(0.1, 3600), "seconds after which a file is complete: how late its readers are", live=True
    )
    ship: bool = setting(False, FLAG, "run `rpcmq ship` beside the router, with what follows")
    ship_seconds: float = setting(1.0, seconds(0.05, 3600), "seconds between two scans for complete files")
    keep_seconds: float = setting(30 * DAY, seconds(1, 3650 * DAY), "seconds that shipped records are kept")
    keep_bytes: int = setting(10 * GIB, BYTES, "bytes of shipped records above which the oldest go")
    keep_ready_seconds: float = setting(
        DAY, seconds(0, 3650 * DAY), "seconds that a segment stays in ready/ when its records are in log/"
    )


@dataclass(frozen=True)
class SecuritySettings:
    """CURVE: who may connect, and what a key may do at most: docs/security.md."""

    keys: str = setting(
        "", OPTIONAL_PATH, "folder with router.key and authorized/, as `rpcmq init` makes it; empty: no CURVE",
        flag="--keys",
    )  # fmt: skip
    max_bytes_per_key: int = setting(
        GIB,
        BYTES,
        "bytes held for all links of one key, both ways, beyond which it is refused calls and casts",
        live=True,
    )
    max_links_per_key: int = setting(10_000, COUNT, "links of one key, unless its file says otherwise", live=True)
    messages_per_second: float = setting(
        0.0, RATE, "calls, casts and events of one key, unless its file says otherwise; 0: no limit", live=True
    )


@dataclass(frozen=True)
class MeshSettings:
    """Other routers that this one is linked to, and works as one with."""

    name: str = setting("rpcmq", NAME, "name of the mesh; routers of other meshes are refused")
    peers: tuple[str, ...] = setting(
        (), URLS, "endpoints of routers to link to; one of the mesh is enough", flag="--peer"
    )
    peer: tuple[Peer, ...] = setting(
        (),
        PEER_TABLES,
        "more of them, with their keys and the topics that may pass: docs/mesh.md",
        env=False,
        flag=None,
    )
    dial: str = setting(
        "all",
        choice("all", "peers"),
        "routers to connect to: all that are heard of, or mesh.peers only, which carry messages to the others",
    )
    advertise: tuple[str, ...] = setting(
        (), URLS, "endpoints that other routers and processes reach this one at; empty: router.listen"
    )
    domains: tuple[str, ...] = setting(
        (), DOMAINS, "topics that only this router's consumers serve, as patterns like 'volume.#'"
    )
    silence_seconds: float = setting(
        1.5, seconds(0.1, 3600), "seconds of silence after which another router gets no new work", live=True
    )
    lost_seconds: float = setting(
        6.0, seconds(0.2, 3600), "seconds of silence after which processes leave a router", live=True
    )
    recovery_seconds: float = setting(
        10.0, seconds(0, 3600), "seconds in which consumers of a router that died say which calls they have", live=True
    )
    return_seconds: float = setting(
        2.0, seconds(0, 3600), "seconds in which one whose connection alone is lost may turn up at another", live=True
    )
    rebalance_seconds: float = setting(
        30.0,
        seconds(0, 86400),
        "seconds between looks whether this router has more processes than its share; 0: it asks none to move",
        live=True,
    )
    max_patterns: int = setting(
        1_000_000, COUNT, "patterns that the processes of another router are subscribed to", live=True
    )
    max_pattern_bytes: int = setting(
        256 * MIB, BYTES, "bytes that the patterns of another router's processes take", live=True
    )
    max_addresses: int = setting(
        1_000_000, COUNT, "addresses of another router, and processes that consume there", live=True
    )
    max_address_bytes: int = setting(256 * MIB, BYTES, "bytes that these take", live=True)
    max_transit_bytes: int = setting(
        64 * MIB, BYTES, "bytes passed on to another router that it has not read; beyond it they are dropped", live=True
    )


@dataclass(frozen=True)
class RouterConfig:
    """All settings of a router, one attribute a section, and the nodes that are plugged in."""

    router: RouterSettings = field(default_factory=RouterSettings)
    link: LinkSettings = field(default_factory=LinkSettings)
    queue: QueueSettings = field(default_factory=QueueSettings)
    mailbox: MailboxSettings = field(default_factory=MailboxSettings)
    topics: TopicSettings = field(default_factory=TopicSettings)
    message: MessageSettings = field(default_factory=MessageSettings)
    call: CallSettings = field(default_factory=CallSettings)
    hedge: HedgeSettings = field(default_factory=HedgeSettings)
    pubsub: PubSubSettings = field(default_factory=PubSubSettings)
    security: SecuritySettings = field(default_factory=SecuritySettings)
    stats: StatsSettings = field(default_factory=StatsSettings)
    mesh: MeshSettings = field(default_factory=MeshSettings)
    dispatch_log: DispatchLogSettings = field(default_factory=DispatchLogSettings)
    node: tuple[NodeTable, ...] = setting(
        (), NODE_TABLES, "node types that are plugged in: docs/guides/node-plug-ins.md", env=False, flag=None
    )


# The first must be less than the second: silence is noticed by a missing heartbeat, then acted on.
ASCENDING = (
    ("link.heartbeat_seconds", "link.unresponsive_seconds"),
    ("link.unresponsive_seconds", "link.lost_seconds"),
    ("mesh.silence_seconds", "mesh.lost_seconds"),
)
