"""numpy's view of what was recorded."""

import instrument
from instrument.testing import InMemoryExporter


class Arrays(InMemoryExporter):
    """Sums durations per path by numpy, from the recorder's own memory."""

    def __init__(self):
        super().__init__()
        self.sums = {}
        self.starts = []

    def export(self, batch, /):
        super().export(batch)
        for chunk, records in batch.arrays():
            assert len(records) == chunk.count
            assert not records.flags.owndata
            durations = records["end"] - records["start"]
            for record, duration in zip(records, durations, strict=True):
                path = batch.paths[record["path"]].path
                self.sums[path] = self.sums.get(path, 0) + int(duration)
            self.starts += [int(start) + batch.wall_offset for start in records["start"]]


def test_arrays_are_views_of_the_records_that_spans_decode():
    exporter = Arrays()
    with instrument.session(export=exporter):
        for number in range(50):
            with instrument.region("outer"), instrument.region("inner", number=number):
                pass
    summed = {}
    for span in exporter.spans:
        summed[span.path] = summed.get(span.path, 0) + span.dur
    assert summed.keys() == {"outer", "outer/inner"}
    assert exporter.sums == summed
    assert exporter.starts == [span.start for span in exporter.spans]
