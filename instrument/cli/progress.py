"""Long work: a line on stderr that says how far it is, on a terminal only; and no collector in its way."""

import gc
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Final, Self

__all__ = ["Progress", "without_gc"]

_SILENT_FOR: Final = 0.4
_EVERY: Final = 0.1


class Progress:
    """Call it with (done, whole). Shows nothing for work that is over in under half a second."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._on = sys.stderr is not None and sys.stderr.isatty()
        self._next = time.monotonic() + _SILENT_FOR
        self._shown = False

    def __call__(self, done: int, whole: int) -> None:
        if not self._on or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _EVERY
        self._shown = True
        part = min(done / whole, 1.0) if whole else 1.0
        bar = "━" * round(part * 30)
        sys.stderr.write(f"\r{self._what} {bar:<30} {100 * part:3.0f}% of {whole / 1e6:,.0f} MB")
        sys.stderr.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


@contextmanager
def without_gc() -> Iterator[None]:
    """Reading makes no cycles, and looking for them takes a tenth of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
