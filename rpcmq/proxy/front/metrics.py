"""Counters of a front end, as text for Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping

__all__ = ["Metrics", "exposition"]

_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

Sample = tuple[str, Mapping[str, str], float]


class Metrics:
    """Requests by their outcome, and the times that they took."""

    def __init__(self) -> None:
        self._requests: dict[tuple[str, int], int] = {}
        self._buckets = [0] * (len(_BOUNDS) + 1)
        self._seconds = 0.0
        self._sent = 0
        self._broken = 0

    def note(self, cache: str, status: int, sent: int, seconds: float, *, is_whole: bool) -> None:
        """Count a request.

        Args:
            cache: the part that the cache had in it.
            status: of the response; 0: there was none.
            sent: bytes of its body.
            is_whole: whether it was sent to its end.
        """
        key = (cache, status)
        self._requests[key] = self._requests.get(key, 0) + 1
        self._buckets[bisect_left(_BOUNDS, seconds)] += 1
        self._seconds += seconds
        self._sent += sent
        if not is_whole:
            self._broken += 1

    def samples(self) -> Iterable[Sample]:
        """Yield all of them: name, labels, value."""
        for (cache, status), count in sorted(self._requests.items()):
            yield "rpcmq_proxy_requests_total", {"cache": cache, "status": str(status)}, count
        yield "rpcmq_proxy_response_body_bytes_total", {}, self._sent
        yield "rpcmq_proxy_responses_broken_off_total", {}, self._broken
        total = 0
        for bound, count in zip((*map(str, _BOUNDS), "+Inf"), self._buckets, strict=True):
            total += count
            yield "rpcmq_proxy_request_seconds_bucket", {"le": bound}, total
        yield "rpcmq_proxy_request_seconds_sum", {}, self._seconds
        yield "rpcmq_proxy_request_seconds_count", {}, total


def exposition(samples: Iterable[Sample]) -> str:
    """Return samples in the text format of Prometheus; those of one name stand together."""
    lines: list[str] = []
    declared: set[str] = set()
    for name, labels, value in samples:
        family = name
        kind = "counter" if name.endswith("_total") else "gauge"
        for suffix in ("_bucket", "_sum", "_count"):
            if name.endswith(f"_seconds{suffix}"):
                family, kind = name.removesuffix(suffix), "histogram"
        if family not in declared:
            declared.add(family)
            lines.append(f"# TYPE {family} {kind}")
        shown = ",".join(f'{label}="{text}"' for label, text in labels.items())
        lines.append(f"{name}{{{shown}}} {value:.15g}" if shown else f"{name} {value:.15g}")
    return "\n".join(lines) + "\n"
