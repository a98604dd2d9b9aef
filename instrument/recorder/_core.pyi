"""The recorder, written in C: what annotations call, and what the session's drain reads."""

from collections.abc import Callable, Sequence
from types import FunctionType, TracebackType
from typing import Any, Final, Literal, Self, TypeVar, final

_F = TypeVar("_F", bound=Callable[..., Any])
_Evaluate = Callable[..., tuple[Any, ...]] | tuple[Any, ...]

API_VERSION: Final[int]

# Bits of a record's flags; every other bit's name is its name in the run file.
FLAG_NAMES: Final[tuple[str, ...]]
"""Name of bit 0, 1, ...; ``""`` for a bit that is not shown as a flag."""

# ------------------------------------------------------------------ annotations

class Region:
    """Context manager and decorator around one stretch of code; shared, re-entrant, thread-safe."""

    @property
    def name(self) -> str: ...
    @property
    def recording(self) -> bool:
        """Whether this site has an open span in the current thread."""
    @property
    def seconds(self) -> float:
        """Seconds since entry of this site's innermost open span, or of its last one on this thread."""
    def set(self, **attrs: object) -> None:
        """Add attributes to this site's innermost open span; counted, and nothing else, when none is open."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...
    def __call__(self, function: _F, /) -> _F: ...

def region(name: str, /, **attrs: object) -> Region: ...
def step(number: int | None = None, name: str = "step", /, **attrs: object) -> Region: ...
def mark(name: str, /, **attrs: object) -> None: ...
def annotate(**attrs: object) -> None: ...
def count(name: str, n: float = 1, /, **labels: object) -> None: ...
def gauge(name: str, value: float, /, **labels: object) -> None: ...
def observe(name: str, value: float, /, **labels: object) -> None: ...

# ------------------------------------------------------------------ kernels

@final
class Site:
    """One annotation in the source. Immortal: never freed, at most 2,000 and one overflow site per kind."""

    index: int
    name: str
    kind: Literal["region", "kernel", "step", "mark"]
    scope: str
    file: str
    line: int
    def set_sink(
        self, enter: Callable[[int], object] | None, leave: Callable[[int], object] | None, /
    ) -> None:
        """Call ``enter`` and ``leave`` with the id of each of this site's spans, on the user's thread; three
        failures take them off, counted. ``None, None`` takes them off."""

def set_region_decorator(decorator: Callable[[Region, Any], Any], /) -> None:
    """What ``region(...)(function)`` calls, with both."""

def kernel_site(name: str, file: str, line: int, /) -> Site:
    """The site of a kernel, made on first use; the same for the same three values."""

HOOKS_IN_PLACE: Final[bool]
"""Whether this interpreter lets a function be hooked in place (CPython 3.12+)."""

def hook(function: FunctionType, site: Site, evaluate: _Evaluate | None, /) -> None:
    """Record calls of ``function`` while something listens (3.12+). ``evaluate`` is called with the
    call's own arguments and answers ``(flops, bytes, attrs)``, each may be None."""

@final
class Marker:
    """The pieces that a wrapper calls around a function it cannot hook: ``enter()``, then ``leave()`` or
    ``fail(exc)``."""

    def __new__(cls, site: Site | Region, evaluate: _Evaluate | None = None, /) -> Self: ...
    def measure(self, *args: Any, **kwargs: Any) -> object:
        """Evaluate with the call's arguments, for the :meth:`enter` that follows."""
    def enter(self, measured: object = None, /) -> None: ...
    def leave(self) -> None: ...
    def __pos__(self) -> None:
        """:meth:`enter`, by the cheapest way from byte code into C."""
    def __neg__(self) -> None:
        """:meth:`leave`, in the same way."""
    def fail(self, exc: BaseException, /) -> None: ...

# ------------------------------------------------------------------ the session's side

def start(
    *,
    buffer_bytes: int = 64 << 20,
    chunk_bytes: int = 1 << 16,
    overflow: Literal["newest", "oldest"] = "newest",
    max_paths: int = 4096,
    directory: str | None = None,
) -> None:
    """Begin to record: totals, losses and chunks empty, kernels hooked. RuntimeError when already on,
    ValueError for a size that cannot hold one chunk. ``directory``: chunks live in one private file there."""

def stop() -> None:
    """End recording: hooks out, spans still open are written with the flag ``unfinished``. The chunks,
    totals and losses stay readable until the next start. Does nothing when off."""

def active() -> bool: ...

@final
class Chunk:
    """A sealed piece of one thread's recording. Its memory goes back to the recorder when it is freed,
    and counts against the buffer until then. Supports the buffer protocol: ``count`` records of 32 bytes
    (start u64, end u64, path u32, sequence u32, attributes u32, context u16, flags u16), all times
    CLOCK_MONOTONIC nanoseconds; numpy views it without a copy."""

    thread: int
    """Serial number of the thread in this process, from 1."""
    tid: int
    """The operating system's thread id."""
    count: int
    """Spans and marks in it."""
    marks: int
    """How many of them are marks."""
    def __len__(self) -> int: ...
    def decode(
        self,
    ) -> list[
        tuple[
            int,
            int,
            int,
            int,
            int,
            int,
            int,
            int | None,
            int | None,
            str | None,
            dict[str, Any] | None,
            dict[str, float] | None,
        ]
    ]:
        """One tuple a record, in order of completion: (id, parent id or 0, root id, path index, start ns,
        end ns, flags, step, task, error, attrs, measures)."""
    def jsonl(self, wall_offset_ns: int, following: Sequence[Chunk] = (), /) -> bytes:
        """The records as ``span`` and ``mark`` lines of the run file; ``wall_offset_ns`` turns
        CLOCK_MONOTONIC into Unix time. Lines of ``following`` come after: one release of the GIL, which is
        what a chunk alone mostly waits for, serves them all."""

def take() -> list[Chunk]:
    """All that was recorded since the last call, oldest first within a thread."""

def tick() -> tuple[int, int, int]:
    """Read the clocks and steer the recorder's clock to CLOCK_MONOTONIC: (ticks, monotonic ns, wall ns)."""

def clock_source() -> Literal["tsc", "monotonic"]: ...
def now() -> int:
    """The recorder's time, in CLOCK_MONOTONIC ns: what spans carry."""

def path_count() -> int: ...
def path(index: int, /) -> tuple[str, str, str, int, int]:
    """(name, kind, path string, parent path index, site index); index from 1, parent 0 is the root."""

def sites(first: int = 0, /) -> list[Site]:
    """The sites from index ``first`` on."""

def threads(first: int = 0, /) -> list[tuple[int, int, str]]:
    """(serial, OS thread id, name) of the threads that recorded since start, in order, from the
    ``first`` on."""

def totals() -> list[tuple[int, int, int, int, int, int, int, int, list[tuple[int, int]], int, float, float]]:
    """Per path that was entered since start, over all threads:
    (path index, count, errors, open, sum ns, self ns, min ns, max ns, [(lowest ns of the bucket, count)...],
    measured, flops, bytes). ``measured`` is how many of the spans carry flops or bytes."""

def metrics() -> list[tuple[str, str, dict[str, Any], int, float, float, float, float]]:
    """Per series since start: (kind, name, labels, count, sum, min, max, last)."""

def losses() -> dict[str, int]:
    """What was not recorded since start, by reason; cumulative."""

def memory() -> tuple[int, int]:
    """Bytes in use by the recorder, and the bound."""

def after_fork() -> int:
    """In a fork's child: new ids, inherited records and open spans discarded; says how many records."""

def on_first_record(callback: Callable[[], object] | None, /) -> None:
    """Call ``callback`` once, from the main thread and soon, when the next chunk is begun."""
