"""Lines of the run file to trace events, in C."""

class Converter:
    """One process of a trace. Not for several threads at once: RuntimeError then."""

    def __new__(
        cls, base: int, pid: int, categories: tuple[bytes, bytes, bytes, bytes], profiler_steps: bool
    ) -> Converter:
        """``base``: Unix ns that the trace counts from. ``pid``: the process in the trace.

        ``categories``: JSON for spans of kind region, kernel and step, and for marks. ``profiler_steps``:
        numbered steps are called ``ProfilerStep#N``.
        """

    def feed(self, block: bytes, start: int, /) -> tuple[bytes, int, int]:
        """Convert whole lines from index ``start`` on: events, where it stopped, how many.

        It stops at a line that the recorder does not write so, and at a span that does not fit on its
        thread's track.
        """

    def place(self, track: int, parent: int, start: int, end: int, /) -> bool:
        """Whether a span fits on a track among those before it: inside or outside of each.

        Times are ns; a thread's track has the thread's id.
        """
