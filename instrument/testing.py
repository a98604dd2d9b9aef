"""For tests, the users' and ours: what was recorded, as objects.

::

    def test_the_batch_is_loaded_once():
        with capture() as got:
            run()
        assert [span.name for span in got.spans] == ["load_batch"]
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from instrument.records import Batch, Loss, Mark, Metric, Resource, Span, Total
from instrument.sessions import start_private

__all__ = ["InMemoryExporter", "capture"]


class InMemoryExporter:
    """Keeps everything it gets, without bound; not for programs. Complete after ``flush()`` or ``stop()``."""

    def __init__(self) -> None:
        self.resource: Resource | None = None
        self.spans: list[Span] = []
        """In order of completion within a thread."""
        self.marks: list[Mark] = []
        self.metrics: list[Metric] = []
        """The newest state of each series."""
        self.totals: list[Total] = []
        """Filled by ``stop()``."""
        self.losses: list[Loss] = []
        self.closed = False

    def open(self, resource: Resource, /) -> None:
        """Note who records."""
        self.resource = resource

    def export(self, batch: Batch, /) -> None:
        """Decode and keep."""
        self.spans += batch.spans()
        self.marks += batch.marks()
        newest = {metric.series: metric for metric in [*self.metrics, *batch.metrics]}
        self.metrics = list(newest.values())
        self.totals += batch.totals
        self.losses = list(batch.losses)

    def flush(self, deadline: float, /) -> bool:
        """Nothing is ever kept back."""
        return True

    def close(self, deadline: float, /) -> bool:
        """Note it; what was recorded stays readable."""
        self.closed = True
        return True


@contextmanager
def capture(**options: Any) -> Iterator[InMemoryExporter]:
    """Record what the block does into memory; complete when it is left, or after ``instrument.flush()``.

    Takes the options of ``start()`` but ``export``; the environment and files have no say. ConfigError while
    a session is on, since there is one recorder per process: not for tests that run in threads at the same
    time.
    """
    exporter = InMemoryExporter()
    session = start_private(exporter, **options)
    try:
        yield exporter
    finally:
        session.stop(timeout=30.0)
