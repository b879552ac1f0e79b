"""The table of the links between routers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from rpcmq.cli.output import add_row, table

__all__ = ["LINKED", "LINKS_SPARE", "links_table"]

#: The state of a link that is there, and over which the other router is heard.
LINKED = "answering"
#: Columns without which the table is shown where it does not fit, in that order.
LINKS_SPARE = ("bytes in", "bytes out", "in", "out", "for s")


def links_table(views: Mapping[str, dict[str, Any]]) -> Table:
    """A table of the links that routers have.

    Args:
        views: the view ``mesh`` of each, by its name.
    """
    traffic = (">out", ">bytes out", ">in", ">bytes in")
    made = table("Links", "router", "to", "state", ">round trip", ">for s", *traffic, "why")
    for name, view in sorted(views.items()):
        for row in sorted(view["routers"], key=lambda row: (not row["name"], row["name"])):
            if row["state"] == "left":
                continue
            if "connected_seconds" in row:
                trip = "" if row["round_trip_ms"] is None else f"{row['round_trip_ms']:.2f} ms"
                counts = [row[what] for what in ("messages_out", "bytes_out", "messages_in", "bytes_in")]
                cells = (trip, f"{row['connected_seconds']:.0f}", *counts)
            else:
                cells = ("",) * 6
            note = row["why"] or (f"over {', '.join(row['via'])}" if row.get("via") else "")
            shown = (name, row["name"] or ", ".join(row["urls"]), row["state"], *cells, note)
            add_row(made, shown, "" if row["state"] == LINKED else "yellow")
    return made
