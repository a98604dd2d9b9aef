"""instrument: one annotation in operator code, every profiling tool.

    import instrument

    @instrument.kernel(flops=lambda q, k: 2 * q.shape[0] * k.shape[0] * q.shape[1])
    def scores(q, k): ...

    with instrument.region("load_batch", batch=32): ...

    with instrument.session(export="json:run.jsonl"):
        main()

Importing it loads the standard library and the C recorder, nothing else: what measures, exports or reads a
run is loaded by the first call that needs it. With ``INSTRUMENT_EXPORT`` or ``INSTRUMENT_MODE`` in the
environment the import itself starts a session; with ``INSTRUMENT_DISABLED=1`` everything stays off.
"""

import os as _os
import sys as _sys

from instrument._switch import DISABLED as _DISABLED

try:
    from instrument.annotations import annotate, count, gauge, kernel, mark, observe, region, step
except ImportError as _error:
    # Both ways to import a module that is not there; one that is there and does not load has another name.
    if (type(_error), _error.name) not in (
        (ModuleNotFoundError, "instrument.recorder._core"),
        (ImportError, "instrument.recorder"),
    ):
        raise
    raise ImportError(
        f"instrument: the C extension is not built for this Python ({_sys.implementation.cache_tag}); "
        "`pip install .` in the source tree builds it",
        name=_error.name,
    ) from None

from instrument.errors import ConfigError

# `typing.TYPE_CHECKING` would cost the import of typing; type checkers know the bare name as well.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from instrument.sessions import flush as flush
    from instrument.sessions import session as session
    from instrument.sessions import start as start
    from instrument.sessions import stop as stop
else:
    del TYPE_CHECKING

    # Functions that load the session at their first call. A module-level `__getattr__` would be shorter, but
    # with it the interpreter does not specialise `instrument.region`: 30 ns more at every mark, on or off.

    def start(**options):
        """Start to record, until `stop`; the options are those of `instrument.sessions.start`."""
        from instrument.sessions import start

        return start(**options)

    def session(**options):
        """A context manager from `start` to `stop`; the options are those of `instrument.sessions.start`."""
        from instrument.sessions import session

        return session(**options)

    def flush(timeout=5.0):
        """Deliver everything recorded until now; False if that took longer than ``timeout`` seconds."""
        from instrument.sessions import flush

        return flush(timeout)

    def stop(timeout=2.0):
        """Stop the session, within ``timeout`` seconds; its summary."""
        from instrument.sessions import stop

        return stop(timeout)


__all__ = [
    "ConfigError",
    "annotate",
    "count",
    "flush",
    "gauge",
    "kernel",
    "mark",
    "observe",
    "region",
    "session",
    "start",
    "step",
    "stop",
]

__version__ = "0.1.0"

__instrument_api__ = 1
"""Says that this is `instrument-sdk`, not PyPI's unrelated `instrument`; grows with incompatible changes."""


def _warn_of_namesake() -> None:
    """Warn when PyPI's unrelated `instrument` lies in the same folder; one listing of it, under 1 ms."""
    folder = _os.path.dirname(__path__[0])
    try:
        neighbours = [
            name
            for name in _os.listdir(folder)
            if name.startswith("instrument-") and name.endswith((".dist-info", ".egg-info"))
        ]
    except OSError:
        return
    # Half removed, it has no metadata any more; this module of its has no counterpart here.
    if neighbours or _os.path.exists(_os.path.join(__path__[0], "output", "_numpy.py")):
        from warnings import warn

        warn(
            "PyPI's unrelated package `instrument` is installed beside `instrument-sdk` in "
            f"{folder}; both write to the folder `instrument`. Keep one: `pip uninstall instrument`, then "
            "`pip install --force-reinstall --no-deps instrument-sdk`",
            RuntimeWarning,
            stacklevel=2,
        )


def _is_own_command() -> bool:
    """Whether this process is `instrument ...` or `python -m instrument ...`.

    Those read runs, or start a session as their arguments say; `INSTRUMENT_EXPORT` left in the shell must not
    make `instrument report run.jsonl` write over the run it was asked to show.
    """
    argv: list[str] = getattr(_sys, "argv", [])
    if not argv:
        return False
    if argv[0] != "-m":
        return _os.path.basename(argv[0]) == "instrument"
    # While `python -m` looks for its module, sys.argv is ["-m", arguments...].
    original = _sys.orig_argv[-len(argv)] if len(argv) <= len(_sys.orig_argv) else ""
    if original.startswith("-"):
        original = original.partition("m")[2]
    return original.partition(".")[0] == "instrument"


def _start_from_environment() -> None:
    asked = _os.environ.get("INSTRUMENT_EXPORT") or _os.environ.get("INSTRUMENT_MODE")
    if not asked or _DISABLED or _is_own_command():
        return
    try:
        from instrument.sessions import start

        start()
    except Exception as error:  # the program did not ask for us by a call: it runs on, unmeasured
        text = " ".join(str(error).split()) or type(error).__name__
        _sys.stderr.write(f"instrument: not recording: {text}\n")


_warn_of_namesake()
_start_from_environment()
