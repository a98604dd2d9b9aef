"""What happens to a session at fork, in multiprocessing's children, and when the interpreter exits.

What
    :func:`guard` makes a session known. In a fork's child the session goes on with an exporter of its own,
    begun by the child's first record; at the end of every process the session is stopped, with a deadline.
Why
    After a fork only the forking thread lives, and any lock may be held for ever. So the hook that runs there
    sets attributes, nothing else: no lock, I/O, logging or thread. What it leaves undone is done by the first
    record, or by the first call of ``flush``, ``stop`` or ``report``, whichever comes first.
How
    ``atexit`` covers normal ends and children of ``os.fork`` that end by ``sys.exit``. A child that another
    thread than the main one forked ends, without ``atexit``, with its last thread: the drain, which would be
    that thread for ever, looks whether it is alone. A child of multiprocessing ends by ``os._exit`` and,
    before Python 3.13, runs no ``atexit``: there a ``Finalize`` of multiprocessing does it. At exit nothing
    is imported, and no thread is started.
"""

import _thread
import atexit
import os
import sys
import threading
import time
from contextlib import suppress
from typing import Any, Final, Protocol

from instrument.recorder import _core

__all__ = [
    "EXIT_TIMEOUT",
    "Guarded",
    "Lingering",
    "at_exit",
    "forked_by_a_thread",
    "guard",
    "guarded",
    "linger",
    "release",
    "settle",
]

EXIT_TIMEOUT: Final = 2.0
"""Seconds that the end of a process may take for exporters, all together."""


class Guarded(Protocol):
    """A session, as far as this module knows one."""

    def inherit(self) -> None:
        """In a fork's child: note that threads and files are the parent's. Sets attributes, nothing else."""

    def resume(self) -> None:
        """In a fork's child: begin to drain. Does nothing the second time."""

    def stop_at_exit(self, timeout: float) -> None:
        """The process ends."""


class Lingering(Protocol):
    """A stopped session whose exporters had not finished at the deadline."""

    def wait_at_exit(self, deadline: float) -> None:
        """Wait for them; then say what is lost."""


class _State:
    def __init__(self) -> None:
        self.holder: dict[str, Guarded] = {}  # at most one; a dict, so that guard() is atomic
        self.lingering: list[Lingering] = []
        self.installed = False
        self.known_to_multiprocessing = False
        self.pid = os.getpid()  # a fork's child has its own when the session has heard of the fork


_state = _State()
_KEY: Final = "session"


def guarded() -> Guarded | None:
    """The session that is on in this process."""
    return _state.holder.get(_KEY)


def guard(session: Guarded) -> Guarded:
    """Make a session known, unless there is one: that one is the answer. The hooks go in once, and stay."""
    if not _state.installed:
        _state.installed = True
        os.register_at_fork(after_in_child=_in_child)
        atexit.register(at_exit)
        _tell_multiprocessing()
        if _is_child_of_multiprocessing():
            _in_multiprocessing_child(_state)
    return _state.holder.setdefault(_KEY, session)


def release(session: Guarded) -> None:
    """Forget a session that has stopped."""
    if _state.holder.get(_KEY) is session:
        del _state.holder[_KEY]


def linger(session: Lingering) -> None:
    """Give a stopped session's exporters another chance when the process ends."""
    if session not in _state.lingering:
        _state.lingering.append(session)


def settle(session: Lingering) -> None:
    """All of a stopped session's exporters have ended."""
    if session in _state.lingering:
        _state.lingering.remove(session)


# ------------------------------------------------------------------ fork


def _in_child() -> None:
    session = guarded()
    if session is not None:
        session.inherit()
    _state.lingering = []
    _core.after_fork()  # when nobody holds the parent's records any more
    _state.pid = os.getpid()
    if session is None:
        return
    _core.on_first_record(_first_record)
    _tell_multiprocessing()
    if _is_child_of_multiprocessing():
        # Forked by the program itself, maybe: its `sys.exit` ends in multiprocessing too, where what it has
        # inherited does not run. Else multiprocessing empties this list, and calls us again.
        _in_multiprocessing_child(_state)


def _first_record() -> None:
    """Called between two bytecodes of the main thread, which may hold any of threading's locks: so the work
    is given to a raw thread, whose start takes none.

    A fork's child inherits a call that was still to come. It comes while the session is hearing of the fork,
    and is dropped: there will be another."""
    session = guarded()
    if session is not None and _state.pid == os.getpid():
        _thread.start_new_thread(_resume, (session,))


def _resume(session: Guarded) -> None:
    session.resume()


def _tell_multiprocessing() -> None:
    """A child of multiprocessing empties its list of finalizers when it begins, and calls us afterwards."""
    util = sys.modules.get("multiprocessing.util")
    if util is not None and not _state.known_to_multiprocessing:
        util.register_after_fork(_state, _in_multiprocessing_child)
        _state.known_to_multiprocessing = True  # its children inherit the entry


def _is_child_of_multiprocessing() -> bool:
    """Whether multiprocessing made this process, and has it running already."""
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.parent_process() is not None


def _in_multiprocessing_child(_: Any) -> None:
    util: Any = sys.modules["multiprocessing.util"]
    # Not negative, or it would run after this child's own children were waited for.
    util.Finalize(None, at_exit, exitpriority=0)


# ------------------------------------------------------------------ exit


def forked_by_a_thread() -> bool:
    """Whether this is the child of a fork in another thread than the main one. Python takes that for the main
    thread here, yet its end is not the interpreter's."""
    return type(threading.main_thread()).__name__ != "_MainThread"


def at_exit() -> None:
    """The process ends: the session stops, and exporters get the rest of their time."""
    deadline = time.monotonic() + EXIT_TIMEOUT
    session = guarded()
    with suppress(Exception):
        if session is not None:
            session.stop_at_exit(EXIT_TIMEOUT)
        lingering, _state.lingering = _state.lingering, []
        for stopped in lingering:
            stopped.wait_at_exit(deadline)
