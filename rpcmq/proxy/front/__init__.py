"""Front ends: what clients talk to. Hits are answered here, all else by fetchers behind the routers."""

from __future__ import annotations
