"""Casts that a process had: which of them run once more when they come again, from the same router or another one.

A consumer may *set aside* each cast until it begins it (:attr:`Registration.sets_aside`). If the session ends before
that, or the router has taken this process for lost, such a cast is others': it is not begun here, and may be delivered
here again. So may one that comes again while it is set aside, for its sender may have gone to another router. Any other
one that comes again was had. An idempotent one comes again also where its sender knows of nothing: the router that has
it delivers it once more where its consumer was at a router that is gone, or away for long.
"""

from __future__ import annotations

from collections.abc import Iterable

from rpcmq.core.process.recent_messages import RecentMessages
from rpcmq.core.process.task import Registration, Sender, Task
from rpcmq.wire import Flag

__all__ = [
    "awaits_end", "cut_off_of", "had_before", "is_others_now", "note_begun", "note_cut_off", "note_registered",
    "note_session_over", "note_welcome",
]  # fmt: skip

_RESENT, _IDEMPOTENT, _FANOUT = int(Flag.RESENT), int(Flag.IDEMPOTENT), int(Flag.FANOUT)


def had_before(key: bytes, flags: int, registration: Registration, recent: RecentMessages) -> bool:
    """Return whether the cast ``key``, which may come again, was had for ``registration``: it runs no more."""
    if flags & _IDEMPOTENT:
        recent.look_up_often()
    waiting = registration.running.get(key)
    if waiting is not None and waiting in registration.set_aside:
        # Not begun: what has come now counts, for the router that had sent the first one may be gone.
        registration.set_aside.remove(waiting)
        return False
    if not recent.is_known(key, registration.group):
        return False
    # One that still runs, of which nobody was told, may be run once more: else it is lost if this process is.
    return bool(flags & _RESENT) or (key not in registration.running and key not in registration.cut_off)


def note_begun(task: Task, router: Sender) -> None:
    """``task`` was delivered to a consumer that sets casts aside: it is others' until the consumer says otherwise."""
    # A peer's is nobody else's, nor is a copy of a fanout.
    if not task.is_call and not task.flags & _FANOUT and task.sender is router:
        task.registration.set_aside.add(task)


def is_others_now(task: Task, recent: RecentMessages) -> bool:
    """Return whether ``task``, which the router has lost sight of, is not begun here; it may come again."""
    registration = task.registration
    if task not in registration.set_aside:
        return False
    registration.set_aside.remove(task)
    # The next router must not be told that it was had.
    recent.forget(task.key, registration.group)
    return True


def note_welcome(registrations: Iterable[Registration], resumed: bool, lapsed: bool) -> None:
    """The router has welcomed this process, which goes on with its session if ``resumed``.

    Args:
        lapsed: it had taken ``registrations`` for lost, and is about to restore them. What it had sent to them, and had
            not come, comes before it says so: perhaps over a later connection, whose welcome does not say it again.
    """
    for registration in registrations:
        registration.is_lapsed = resumed and (lapsed or registration.is_lapsed)


def note_registered(registration: Registration | None, is_anew: bool, recent: RecentMessages) -> None:
    """The router has ``registration``; ``is_anew``: it had taken it for lost, and others were given its casts."""
    if registration is None:
        return
    registration.is_lapsed = False
    for task in list(registration.set_aside) if is_anew else ():
        if is_others_now(task, recent):
            task.abandon()
            registration.running.pop(task.key, None)


def note_cut_off(task: Task) -> None:
    """``task`` runs on although its session is over."""
    if not task.is_call and task.flags & _IDEMPOTENT:
        task.registration.cut_off[task.key] = None


def note_session_over(registration: Registration) -> None:
    """No router that has sent again what runs on waits for its end."""
    registration.cut_off = dict.fromkeys(registration.cut_off)


def cut_off_of(registrations: Iterable[Registration]) -> set[bytes]:
    """Return the keys of casts that run on although their session is over, and may not come to an end."""
    return {key for registration in registrations for key in registration.cut_off}


def awaits_end(key: bytes, attempt: int, flags: int, registration: Registration) -> bool:
    """Note that the router has sent the cast ``key`` again, and is told when it has ended; False: it does not run.

    Told at once, neither it nor the sender would have it run again if this process is lost before that end.
    """
    if not flags & _IDEMPOTENT or key not in registration.cut_off:
        return False
    registration.cut_off[key] = attempt
    return True
