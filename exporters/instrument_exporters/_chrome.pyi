"""Lines of the run file to trace events, in C."""

class Converter:
    """One trace's worth of threads. Not for several threads at once: RuntimeError then."""

    def __new__(
        cls, base: int, categories: tuple[bytes | None, bytes | None, bytes | None, bytes | None]
    ) -> Converter:
        """``base``: Unix ns that the trace counts from. ``categories``: JSON for spans of kind region, kernel and
        step, and for marks; None where :meth:`feed` shall stop."""

    def feed(self, block: bytes, start: int, /) -> tuple[bytes, int]:
        """Convert whole lines from index ``start`` on, until one that the recorder does not write so, or whose
        span does not fit on its thread's track. Answers (events, each after ``,\\n``; where it stopped)."""

    def place(self, pid: int, tid: int, parent: int, start: int, end: int, /) -> bool:
        """Whether a span fits on a track among those before it: inside or outside of each. Times are ns."""
