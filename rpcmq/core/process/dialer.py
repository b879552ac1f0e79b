"""Reconnect policy: when to dial which router, when to abandon an attempt or a connection, and how long to pause.

    PAUSED --tick: DIAL--> CONNECTING --reached--> HANDSHAKE --greeted--> GREETING --welcomed--> UP
      ^                         |                      |                     |                    |
      |------ ended, refused, or tick: HANG_UP --------------------------------------------------|

Whatever ends an attempt or a connection, and in whatever phase, also ends the uplink's: it is DOWN while the dialer is
PAUSED, so that HELLO is said on each connection.

**Several routers.** A process uses one of its routers at a time. It stays with it while it lives: a connection that
is lost is made again to the same one, so that the session goes on, and only if that fails the next router is dialled.
A router that is silent, shuts down or refuses us is left at once; one that says that our identity is taken is not,
since that may be our own connection of a moment ago. Where another router has welcomed us nothing leads back by itself.
:mod:`rpcmq.core.process.router_choice` knows whose turn it is, and :mod:`rpcmq.core.process.departure` when the router
of a mesh is left because it drains.

**Back in time.** A router holds casts and events for ``recovery_seconds`` after its start, for those who are on their
way back. An attempt that leads nowhere and the pause after it are over within three quarters of that, whatever the
settings say. An attempt that the router's end has taken may last longer each time: a router to which everybody comes
back at once is slow, and would be slower if they all began anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from rpcmq.core.process.departure import Departure
from rpcmq.core.process.router_choice import RouterChoice
from rpcmq.core.process.uplink import Uplink

__all__ = ["INSIST_SECONDS", "Dialer", "Phase", "Step"]

#: Seconds for which a process insists on an identity that the router says is taken: the router may
#: not have noticed yet that the one before is gone.
INSIST_SECONDS = 3.0
#: After a connection that lasted less (seconds), pause before the next.
_SHORT = 0.1
_IDENTITY_TAKEN = "identity-taken"
#: In a mesh, the time over which the processes of a router that is gone come to the others (seconds).
_MOVE_SPREAD = 0.02
#: Shares of the recovery window for an attempt and for a pause; and the least of each (seconds).
_ATTEMPT_SHARE, _LEAST_ATTEMPT = 0.5, 0.5
_PAUSE_SHARE, _LEAST_PAUSE = 0.25, 0.05


class Phase(Enum):
    """Phases of a connection."""

    IDLE = "not started"
    PAUSED = "not connected"
    CONNECTING = "waiting for the TCP connection"
    HANDSHAKE = "in the ZMTP handshake"
    GREETING = "waiting to be welcomed"
    UP = "welcomed"
    STOPPED = "stopped"


class Step(Enum):
    """Instructions to the shell."""

    NONE = "nothing"
    DIAL = "open a connection"
    HANG_UP = "close the connection"


class Dialer:
    """Keeps ``uplink`` connected.

    Args:
        uplink: told of connections that stand, and that are gone.
        urls: of the routers, at least one.
        attempt_seconds: how long an attempt may take until the router has welcomed us. Of several routers each one gets
            its part of that first, so that all are tried in that time.
        longest_pause: between two attempts with the same router (seconds).
        first: index of the router to begin with; any integer.

    Attributes:
        problem: why there is no connection, or why the last one ended; empty while there is one.
        identity_taken: why no other attempt is made: another live process has our identity.
    """

    def __init__(
        self, uplink: Uplink, urls: Sequence[str], attempt_seconds: float, longest_pause: float, first: int = 0
    ) -> None:
        self._uplink = uplink
        self._routers = RouterChoice(urls, first)
        self._departure = Departure(uplink, self._routers)
        uplink.moves.on_routers = self._routers.learn
        uplink.moves.on_asked = self._departure.asked
        self._attempt_seconds = attempt_seconds
        self._longest_pause = longest_pause
        self.phase = Phase.IDLE
        self.problem = ""
        self.identity_taken = ""
        #: End of the current pause or attempt.
        self._until = 0.0
        self._began = 0.0
        self._welcomed_at = 0.0
        self._taken_since: float | None = None

    def start(self, now: float) -> None:
        """Start; :meth:`tick` returns the first step."""
        if self.phase is Phase.IDLE:
            self.phase = Phase.PAUSED
            self._until = self._uplink.lost_at = now

    def stop(self) -> None:
        """Make no further attempt."""
        self.phase = Phase.STOPPED

    @property
    def url(self) -> str:
        """The url of the router that we are connected to, or dial next."""
        return self._routers.url

    @property
    def problems(self) -> list[tuple[str, str]]:
        """The url of each router, with the reason why it was left since the last welcome, or ''."""
        return self._routers.problems

    @property
    def busy(self) -> bool:
        """Whether there is a connection, or one is being made."""
        return self.phase in (Phase.CONNECTING, Phase.HANDSHAKE, Phase.GREETING, Phase.UP)

    def next_deadline(self) -> float | None:
        """The time of the next :meth:`tick` (monotonic seconds)."""
        if self.phase is Phase.UP:
            leave_at = self._departure.next_deadline()
            return self._uplink.given_up_at if leave_at is None else min(leave_at, self._uplink.given_up_at)
        return None if self.phase in (Phase.IDLE, Phase.STOPPED) else self._until

    def tick(self, now: float, jitter: float) -> Step:
        """The next step.

        Args:
            jitter: from 0 to 1, where in its range the next pause is.
        """
        if self.phase is Phase.UP:
            if self._departure.is_due(now, jitter):
                reason, url = self._departure.reason, self._departure.leave()
                step = self._leave(now, jitter, reason)
                if url:
                    self._routers.move_to(url)
                return step
            if now < self._uplink.given_up_at:
                return Step.NONE
            silent = now - self._uplink.heard
            return self._leave(now, jitter, f"the router had been silent for {silent:.1f} s")
        if self.phase in (Phase.IDLE, Phase.STOPPED) or now < self._until:
            return Step.NONE
        if self.phase is Phase.PAUSED:
            self.phase = Phase.CONNECTING
            self._began = now
            self._until = now + self._patience(0)
            return Step.DIAL
        if self.phase is not Phase.CONNECTING:
            self._routers.note_stalled()
        return self._leave(now, jitter, self._why_nothing_came())

    def _leave(self, now: float, jitter: float, problem: str) -> Step:
        self._end(now, jitter, problem, moves_on=True)
        return Step.HANG_UP

    def _patience(self, stalled: int) -> float:
        """Return the longest duration of the next attempt; ``stalled`` attempts have reached the router host before."""
        share = self._attempt_seconds / len(self._routers)
        recovery = self._uplink.recovery_seconds
        if recovery:
            share = min(share, recovery * _ATTEMPT_SHARE)
        return min(self._attempt_seconds, max(_LEAST_ATTEMPT, share) * 2.0 ** min(stalled, 30))

    def _longest(self) -> float:
        recovery = self._uplink.recovery_seconds
        return min(self._longest_pause, max(_LEAST_PAUSE, recovery * _PAUSE_SHARE)) if recovery else self._longest_pause

    def _why_nothing_came(self) -> str:
        seconds = self._until - self._began
        nothing = f"no answer within {seconds:g} s"
        if self.phase is Phase.HANDSHAKE:
            return f"handshake with {self.url}: connected, but {nothing}"
        if self.phase is Phase.GREETING:
            return f"connected, but the router has not welcomed us within {seconds:g} s"
        return nothing

    def go_to(self, router: str) -> None:
        """Go on at the router of that name, in a mesh: this one does not take what the process serves."""
        self._departure.go_to(router)

    # --- what the shell tells ----------------------------------------------------------------

    def reached(self, now: float) -> None:
        """Handle the TCP connection."""
        if self.phase is Phase.CONNECTING:
            self.phase = Phase.HANDSHAKE
            self._until = self._began + self._patience(self._routers.stalled)

    def greeted(self, now: float) -> None:
        """Handle the end of the ZMTP handshake: the uplink sends HELLO."""
        if self.phase in (Phase.CONNECTING, Phase.HANDSHAKE):
            self.reached(now)
            self.phase = Phase.GREETING
            self._uplink.connected(now, self.url)

    def welcomed(self, now: float) -> None:
        """Handle WELCOME."""
        if self.phase is Phase.GREETING:
            self.phase = Phase.UP
            self.problem = ""
            self._welcomed_at = now
            self._routers.note_welcomed()
            self._departure.arrived()
            self._taken_since = None

    def refused(self, now: float, jitter: float, reason: str, text: str) -> Step:
        """Handle a refusal by the router, of this process or of a message."""
        if not self.busy or (self.phase is Phase.UP and reason == "protocol"):
            return Step.NONE
        since = self._taken_since
        taken = reason == _IDENTITY_TAKEN
        self._end(now, jitter, text, moves_on=not taken)
        if taken:
            self._taken_since = now if since is None else since
            if now - self._taken_since > INSIST_SECONDS:
                self.identity_taken = text
                self.stop()
        return Step.HANG_UP

    def ended(self, now: float, jitter: float, problem: str) -> bool:
        """Handle the end of a connection, or the failure to open one.

        Args:
            jitter: as :meth:`tick` has it.
            problem: why, in words.

        Returns:
            Whether the router had welcomed us on it.
        """
        was_up = self.phase is Phase.UP
        self._end(now, jitter, problem, moves_on=not (was_up and self._has_lasted(now)))
        return was_up

    def _has_lasted(self, now: float) -> bool:
        return now - self._welcomed_at >= _SHORT

    def _end(self, now: float, jitter: float, problem: str, moves_on: bool) -> None:
        """End the connection or the attempt.

        Args:
            moves_on: the next router is dialled, not this one again.
        """
        if not self.busy:
            return
        routers = self._routers
        if self.phase is Phase.UP:
            # Something may end each connection at once: not again and again without a pause.
            pause = 0.0 if self._has_lasted(now) else jitter * self._longest() / 4
            routers.note_ended(now + pause, problem)
        else:
            routers.note_failed(now, jitter, self._longest(), problem)
        spread = 0.0
        if moves_on:
            routers.move_on()
            spread = jitter * _MOVE_SPREAD if self._uplink.moves.mesh is not None else 0.0
        self.phase = Phase.PAUSED
        self.problem = problem
        self._taken_since = None
        self._until = max(now + spread, routers.not_before)
        self._uplink.lost(now)
