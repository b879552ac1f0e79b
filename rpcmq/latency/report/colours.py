"""Colours of plots and page: by name, for a light and for a dark background.

Percentiles and outcomes have hues of Okabe and Ito's palette, which people who see few colours can tell apart; no
two colours of the light scheme are equal, because drawings are recoloured by value.
"""

from __future__ import annotations

__all__ = ["DARK", "LIGHT", "OUTCOMES", "QUANTILES", "STAGES"]

_SCHEMES = {
    # of the page: light, dark
    "back": ("#ffffff", "#11151c"),
    "panel": ("#f6f7f9", "#181e27"),
    "line": ("#dde1e7", "#2b3442"),
    "grid": ("#e8ebef", "#242c38"),
    "ink": ("#1b2430", "#e3e8ef"),
    "muted": ("#596474", "#98a4b5"),
    "accent": ("#0b5cad", "#6db3f8"),
    "good": ("#0a7a4b", "#4fcf98"),
    "bad": ("#b3261e", "#ff8a7e"),
    "warn": ("#8a5a00", "#e7b44c"),
    # percentiles
    "p50": ("#0072b2", "#58b4f0"),
    "p90": ("#00805f", "#2fc79c"),
    "p95": ("#7a7200", "#cfc24a"),
    "p99": ("#c75000", "#ff9248"),
    "p999": ("#a6388a", "#ee8fd0"),
    "max": ("#66707d", "#7e8a9a"),
    # stages
    "queued": ("#e69f00", "#e3a52c"),
    "between": ("#7b5cc4", "#b9a2f5"),
    "network": ("#009e73", "#26b58c"),
    "handler": ("#0073b3", "#3f9fe0"),
    "reply": ("#882255", "#f5c2e7"),
    "rest": ("#b9c1cb", "#566274"),
    # outcomes
    "volume": ("#9db8d2", "#46688a"),
    "remote_error": ("#d55e00", "#f07a24"),
    "timeout": ("#e69f01", "#f2b632"),
    "no_consumer": ("#cc79a7", "#dc8fb9"),
    "overloaded": ("#56b4e9", "#6cc1f1"),
    "link_lost": ("#0071b1", "#3a8fd6"),
    "cancelled": ("#aab2bd", "#8c97a6"),
    "protocol": ("#4b2e83", "#a98be8"),
    "draining": ("#009e74", "#2ab68e"),
    "denied": ("#8f1d2c", "#e0808a"),
    "unknown": ("#3c4653", "#d3d9e2"),
    "other": ("#6b4f3a", "#b39476"),
}
LIGHT = {name: light for name, (light, _) in _SCHEMES.items()}
DARK = {name: dark for name, (_, dark) in _SCHEMES.items()}

#: Names of the colours of quantiles.
QUANTILES = {0.5: "p50", 0.9: "p90", 0.95: "p95", 0.99: "p99", 0.999: "p999"}
#: Names of the colours of stages.
STAGES = ("queued", "between", "network", "handler", "reply", "rest")
#: Outcomes that have a colour of that name; all else is "other".
OUTCOMES = (
    "remote_error", "timeout", "no_consumer", "overloaded", "link_lost", "cancelled", "protocol", "draining", "denied",
    "unknown",
)  # fmt: skip
