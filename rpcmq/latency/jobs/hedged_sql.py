"""The questions about calls that several servers had, in the SQL that both engines understand."""

from __future__ import annotations

from rpcmq.latency.analysis.series import METHOD
from rpcmq.latency.schema import DELIVERIES
from rpcmq.log_format import DIFFERS, MessageKind

__all__ = ["counts", "durations", "is_delivery"]

#: The columns that a call and its deliveries have in common.
_CALL = "router_id, boot, origin_router, origin_link, origin_seq"
_METHOD = ", ".join(METHOD)
_DIFFERS = f"(error_class = '{DIFFERS}' OR error_class LIKE '{DIFFERS}: %')"
#: Another server than the first has answered the call.
_WON = "overtaken > 0 AND outcome IN ('ok', 'remote_error')"


def is_delivery() -> str:
    """The condition for records of deliveries that did not answer their call."""
    return f"kind IN {DELIVERIES}"


def _hedged(records: str) -> str:
    """The begin of a query: ``hedged``, a row for each call of ``records`` that several servers had."""
    of_first = f"kind = '{MessageKind.OVERTAKEN}'"
    cancelled, let_finish = "outcome = 'cancelled'", f"(outcome = 'ok' OR {_DIFFERS})"
    return f"""
        WITH losers AS (
            SELECT {_CALL}, {_METHOD}, count(*) AS extra,
                count(*) FILTER (WHERE {cancelled} AND handler_us IS NULL) AS not_begun,
                count(*) FILTER (WHERE {cancelled} AND handler_us IS NOT NULL) AS ran_on,
                count(*) FILTER (WHERE {let_finish}) AS finished,
                count(*) FILTER (WHERE {_DIFFERS}) AS differing,
                sum(coalesce(service_us, 0)) AS extra_us,
                count(*) FILTER (WHERE {of_first}) AS overtaken,
                max(CASE WHEN {of_first} THEN total_us END) AS first_us
            FROM {records} WHERE {is_delivery()} GROUP BY {_CALL}, {_METHOD}),
        hedged AS (
            SELECT losers.*, ends.outcome, ends.total_us
            FROM losers LEFT JOIN
                (SELECT {_CALL}, max(outcome) AS outcome, max(total_us) AS total_us
                 FROM {records} WHERE kind = '{MessageKind.CALL}' GROUP BY {_CALL}) AS ends
            USING ({_CALL}))"""


def counts(records: str) -> str:
    """``analysis.hedging.COUNTS`` of each method of which several servers had calls.

    Args:
        records: a table with the columns of ``schema.COLUMNS``.
    """
    sums = ", ".join(f"sum({name}) AS {name}" for name in ("extra", "not_begun", "ran_on", "finished", "differing"))
    return f"""{_hedged(records)},
        calls AS (
            SELECT {_METHOD}, count(*) AS calls FROM {records} WHERE kind = '{MessageKind.CALL}' GROUP BY {_METHOD}),
        methods AS (
            SELECT {_METHOD}, count(*) AS hedged, {sums}, sum(extra_us) AS extra_us,
                count(*) FILTER (WHERE {_WON}) AS won
            FROM hedged GROUP BY {_METHOD})
        SELECT methods.*, extra - not_begun - ran_on - finished AS failed, coalesce(calls, 0) AS calls
        FROM methods LEFT JOIN calls USING ({_METHOD})"""


def durations(records: str) -> str:
    """Each of ``analysis.hedging.DURATIONS`` as a row: method, ``measure``, ``us``.

    Of calls whose first server was at it when another one has answered. ``records``: see ``counts``.
    """
    won = f"FROM hedged WHERE {_WON} AND first_us >= total_us"
    return f"""{_hedged(records)}
        SELECT {_METHOD}, 'answered' AS measure, total_us AS us {won}
        UNION ALL SELECT {_METHOD}, 'first' AS measure, first_us AS us {won}
        UNION ALL SELECT {_METHOD}, 'gained' AS measure, first_us - total_us AS us {won}"""
