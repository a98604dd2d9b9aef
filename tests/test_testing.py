import inspect

import pytest

import instrument
from instrument import ConfigError
from instrument.testing import InMemoryExporter, capture


def test_capture_gives_what_the_block_did():
    with capture() as got:
        with instrument.step(4), instrument.region("a", n=1):
            instrument.mark("m", x="y")
        instrument.count("c", 2)
    assert [(span.name, span.path, span.step, span.attrs) for span in got.spans] == [
        ("a", "step/a", 4, {"n": 1}),
        ("step", "step", 4, {}),
    ]
    assert [(mark.path, mark.attrs) for mark in got.marks] == [("step/a/m", {"x": "y"})]
    assert [(metric.name, metric.sum) for metric in got.metrics] == [("c", 2)]
    assert {total.path: total.count for total in got.totals} == {"step": 1, "step/a": 1}
    assert got.losses == []
    assert got.closed


def test_inside_the_block_a_flush_brings_it_up_to_date():
    with capture() as got:
        with instrument.region("a"):
            pass
        instrument.flush()
        assert [span.name for span in got.spans] == ["a"]


def test_labels_that_compare_equal_but_differ_in_type_are_series_of_their_own():
    with capture() as got:
        for number, flag in enumerate((True, 1, 1.0, 1), 1):
            instrument.count("c", number, flag=flag)
        instrument.flush()
        instrument.count("c", 10, flag=True)
    assert sorted((type(m.labels["flag"]).__name__, m.sum) for m in got.metrics) == [
        ("bool", 11),
        ("float", 3),
        ("int", 6),
    ]


def test_metrics_are_the_newest_of_each_series():
    with capture() as got:
        for n in (1, 2, 3):
            instrument.gauge("g", n)
            instrument.gauge("g", n * 10, on="b")
            instrument.flush()
    assert {tuple(metric.labels.items()): metric.last for metric in got.metrics} == {
        (): 3,
        (("on", "b"),): 30,
    }


def test_the_environment_has_no_say(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("INSTRUMENT_EXPORT", "json:run.jsonl")
    monkeypatch.setenv("INSTRUMENT_RANK", "x")
    (tmp_path / "pyproject.toml").write_text("[tool.instrument]\nnonsense = 1\n")
    with capture(rank=3) as got:
        pass
    assert got.resource.rank == 3
    assert [path.name for path in tmp_path.iterdir()] == ["pyproject.toml"]


def test_options_of_start_are_taken_and_checked():
    with pytest.raises(ConfigError, match="buffer_mib"), capture(buffer_mib=-1):
        pass


def test_an_exception_of_the_block_passes_and_capture_ends():
    with pytest.raises(KeyError), capture() as got, instrument.region("a"):
        raise KeyError
    assert [span.error for span in got.spans] == ["KeyError"]
    with capture():
        pass


def test_capture_while_a_session_is_on_is_an_error():
    with capture(), pytest.raises(ConfigError, match="a session is on already"), capture():
        pass


def test_the_fake_is_at_most_fifty_lines():
    assert len(inspect.getsource(InMemoryExporter).splitlines()) <= 50
