"""The questions about calls that several servers had, in the SQL that both engines understand.

Records are given as a table with the columns of ``schema.COLUMNS``, and ``WINDOW``: when the window begins in which
they came, seconds since 1970.
"""

from __future__ import annotations

from rpcmq.latency.analysis.series import METHOD
from rpcmq.latency.schema import DELIVERIES
from rpcmq.log_format import DIFFERS, MessageKind

__all__ = ["COUNTED", "NAMES", "WINDOW", "counts", "durations", "is_delivery"]

#: Name of the column that has the window: what the cells call it is a word of SQL.
WINDOW = "window_start"
#: The dimensions that a call and its deliveries share, and the server, of which each has its own.
NAMES = ("router", *METHOD, "client", "server")
#: Counts of each window, and its names, that add up: those of ``analysis.hedging.COUNTS`` but all calls of a method.
#: A call counts (``hedged``, ``won``) at the server that ended it, a delivery at its own.
COUNTED = ("hedged", "extra", "won", "not_begun", "ran_on", "finished", "differing", "failed", "extra_us")

#: The columns that a call and its deliveries have in common.
_CALL = "router_id, boot, origin_router, origin_link, origin_seq"
_KEY = ", ".join((WINDOW, *NAMES))
_DIFFERS = f"(error_class = '{DIFFERS}' OR error_class LIKE '{DIFFERS}: %')"
#: Another server than the first has answered the call.
_WON = "overtaken > 0 AND outcome IN ('ok', 'remote_error')"


def is_delivery() -> str:
    """The condition for records of deliveries that did not answer their call."""
    return f"kind IN {DELIVERIES}"


def _hedged(records: str) -> str:
    """Begin a query: ``losers``, a row for each delivery that answered nothing, and ``hedged``, for each call."""
    of_first = f"kind = '{MessageKind.OVERTAKEN}'"
    cancelled, let_finish = "outcome = 'cancelled'", f"(outcome = 'ok' OR {_DIFFERS})"
    # Records of a call in two files may differ by what the clock was set between them, or have forgotten the caller.
    shared = ", ".join(f"max({name}) AS {name}" for name in NAMES if name != "server")
    return f"""
        WITH losers AS (
            SELECT {_CALL}, {_KEY},
                CASE WHEN {cancelled} AND handler_us IS NULL THEN 1 ELSE 0 END AS not_begun,
                CASE WHEN {cancelled} AND handler_us IS NOT NULL THEN 1 ELSE 0 END AS ran_on,
                CASE WHEN {let_finish} THEN 1 ELSE 0 END AS finished,
                CASE WHEN {_DIFFERS} THEN 1 ELSE 0 END AS differing,
                coalesce(service_us, 0) AS extra_us,
                CASE WHEN {of_first} THEN 1 ELSE 0 END AS overtaken,
                CASE WHEN {of_first} THEN total_us END AS first_us
            FROM {records} WHERE {is_delivery()}),
        hedged AS (
            SELECT begun.*, ends.server, ends.outcome, ends.total_us
            FROM (SELECT {_CALL}, min({WINDOW}) AS {WINDOW}, {shared},
                    sum(overtaken) AS overtaken, max(first_us) AS first_us
                 FROM losers GROUP BY {_CALL}) AS begun
            LEFT JOIN
                (SELECT {_CALL}, max(server) AS server, max(outcome) AS outcome, max(total_us) AS total_us
                 FROM {records} WHERE kind = '{MessageKind.CALL}' GROUP BY {_CALL}) AS ends
            USING ({_CALL}))"""


def counts(records: str) -> str:
    """``COUNTED`` of each window and each of ``NAMES``; the server is null where a call's end is not in ``records``."""
    sums = ", ".join(f"CAST(sum({name}) AS BIGINT) AS {name}" for name in COUNTED)
    return f"""{_hedged(records)},
        parts AS (
            SELECT {_KEY}, 0 AS hedged, 1 AS extra, 0 AS won, not_begun, ran_on, finished, differing,
                1 - not_begun - ran_on - finished AS failed, extra_us
            FROM losers
            UNION ALL
            SELECT {_KEY}, 1 AS hedged, 0 AS extra, CASE WHEN {_WON} THEN 1 ELSE 0 END AS won, 0 AS not_begun,
                0 AS ran_on, 0 AS finished, 0 AS differing, 0 AS failed, 0 AS extra_us
            FROM hedged)
        SELECT {_KEY}, {sums} FROM parts GROUP BY {_KEY}"""


def durations(records: str) -> str:
    """Each of ``analysis.hedging.DURATIONS`` as a row: window, names, ``measure``, ``us``.

    Of calls whose first server was at it when another one has answered.
    """
    won = f"FROM hedged WHERE {_WON} AND first_us >= total_us"
    return f"""{_hedged(records)}
        SELECT {_KEY}, 'answered' AS measure, total_us AS us {won}
        UNION ALL SELECT {_KEY}, 'first' AS measure, first_us AS us {won}
        UNION ALL SELECT {_KEY}, 'gained' AS measure, first_us - total_us AS us {won}"""
