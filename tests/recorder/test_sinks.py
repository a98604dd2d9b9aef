"""Callbacks at the enter and exit of a site's spans."""

import pytest

from instrument.recorder import _core


@pytest.fixture
def site():
    """A site, whose sink is taken off afterwards."""
    region = _core.region("sunk")
    found = next(site for site in _core.sites() if (site.name, site.kind) == (region.name, "region"))
    yield found
    found.set_sink(None, None)


def test_both_are_called_with_the_id_of_the_span(recording, site):
    calls = []
    site.set_sink(lambda id: calls.append(("enter", id)), lambda id: calls.append(("leave", id)))
    for _ in range(2):
        with _core.region("sunk", a=1):
            pass
    first, second = recording.named("sunk")
    assert calls == [("enter", first.id), ("leave", first.id), ("enter", second.id), ("leave", second.id)]


@pytest.mark.parametrize("which", [0, 1])
def test_either_may_be_missing(recording, site, which):
    calls = []
    site.set_sink(*[calls.append if index == which else None for index in range(2)])
    with _core.region("sunk"):
        pass
    assert calls == [recording.one("sunk").id]


def test_three_failures_take_both_off_and_are_counted(recording, site):
    calls = []

    def fail(id):
        calls.append(id)
        raise RuntimeError("in a collector")

    site.set_sink(fail, None)
    for _ in range(10):
        with _core.region("sunk"):
            pass
    assert len(calls) == 3
    assert recording.losses() == {"sink": 3}
    assert len(recording.named("sunk")) == 10


def test_the_exception_of_the_body_passes_by_the_callback(recording, site):
    seen = []

    def leave(id):
        import sys

        seen.append(sys.exc_info()[0])
        raise RuntimeError("in a collector")

    site.set_sink(None, leave)
    with pytest.raises(LookupError), _core.region("sunk"):
        raise LookupError
    assert recording.one("sunk").error == "LookupError"
    assert len(seen) == 1


def test_a_callback_may_record_on_its_own(recording, site):
    def callback(id):
        def deep(n):
            if n:
                with _core.region("within a sink", n=n):
                    deep(n - 1)

        deep(100)

    site.set_sink(callback, callback)
    with _core.region("sunk", a=1), _core.region("body of sunk"):
        pass
    sunk = recording.one("sunk")
    assert (sunk.parent, sunk.attrs) == (0, {"a": 1})
    assert recording.one("body of sunk").parent == sunk.id
    assert len(recording.named("within a sink")) == 200
    assert recording.losses() == {}


def test_a_callback_may_take_itself_off(recording, site):
    calls = []

    def enter(id):
        calls.append(id)
        site.set_sink(None, None)

    site.set_sink(enter, calls.append)
    for _ in range(3):
        with _core.region("sunk"):
            pass
    assert len(calls) == 1


def test_a_callback_that_enters_its_own_site_ends(recording, site):
    depth = 0

    def enter(id):
        nonlocal depth
        depth += 1
        if depth < 5:
            with _core.region("sunk"):
                pass

    site.set_sink(enter, None)
    with _core.region("sunk"):
        pass
    assert len(recording.named("sunk")) == 5
    assert recording.losses() == {}


@pytest.mark.parametrize("when", ["enter", "leave"])
def test_a_callback_may_stop_the_session(recorder, site, when):
    stop = lambda id: recorder.stop()  # noqa: E731
    site.set_sink(stop if when == "enter" else None, stop if when == "leave" else None)
    recorder.start()
    with _core.region("around the sunk"), _core.region("sunk"):
        pass
    assert len(recorder.named("sunk")) == 1
    assert len(recorder.named("around the sunk")) == 1
    recorder.start()
    site.set_sink(None, None)
    with _core.region("sunk"):
        pass
    assert [span.parent for span in recorder.take()] == [0]


def test_nothing_is_called_while_nothing_records(recorder, site):
    calls = []
    site.set_sink(calls.append, calls.append)
    with _core.region("sunk"):
        pass
    assert calls == []


def test_wrong_arguments_are_type_errors(site):
    with pytest.raises(TypeError):
        site.set_sink()
    with pytest.raises(TypeError):
        site.set_sink(None)


def test_what_cannot_be_called_counts_as_failing(recording, site):
    site.set_sink(3, 4)
    for _ in range(5):
        with _core.region("sunk"):
            pass
    assert recording.losses() == {"sink": 3}
