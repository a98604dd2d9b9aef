import pytest

from kit import measure
from kit.measure import Case, loop, sample_rounds


def fixed(ns_per_call: int) -> measure.Run:
    return lambda n: n * ns_per_call


def case(name: str, ns_per_call: int, base: str | None = "loop") -> Case:
    return Case(name, fixed(ns_per_call), base, count=10)


def test_a_figure_is_the_median_less_that_of_its_base() -> None:
    cases = [case("loop", 10, base=None), case("call", 25), case("kernel, added", 60, base="call")]
    sample_rounds(cases, 5)
    found = measure.figures(cases)
    assert {name: figure.median for name, figure in found.items()} == {
        "loop": 10.0,
        "call": 15.0,
        "kernel, added": 35.0,
    }


def test_rounds_alternate_their_direction_and_the_first_one_only_warms_up() -> None:
    order: list[str] = []

    def noted(name: str) -> measure.Run:
        def run(n: int) -> int:
            order.append(name)
            return n

        return run

    cases = [Case(name, noted(name), None, count=1) for name in "ab"]
    sample_rounds(cases, 2)
    assert "".join(order) == "baabba"
    assert [len(one.samples) for one in cases] == [2, 2]


def test_a_case_that_raises_ends_only_itself() -> None:
    def fail(n: int) -> int:
        raise ValueError("no")

    cases = [case("loop", 1, base=None), Case("bad", fail, None, count=1)]
    sample_rounds(cases, 3)
    assert cases[1].failed == "ValueError: no"
    assert list(measure.figures(cases)) == ["loop"]


def test_a_window_that_was_interrupted_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    switches = iter([0, 1, 1, 1])  # before and after the first try, before and after the second
    monkeypatch.setattr(measure, "_involuntary", lambda: next(switches))
    times = iter([900, 100])
    one = Case("x", lambda n: next(times), None, count=10)
    one.sample()
    assert one.samples == [10.0]
    assert one.disturbed == 0


def test_an_interruption_while_windows_are_sized_does_not_shrink_them() -> None:
    calls = 0

    def run(n: int) -> int:
        nonlocal calls
        calls += 1
        return n * 100 + (5_000_000 if calls == 3 else 0)

    one = Case("x", run, None)
    one.prepare()
    assert one.count == measure.WINDOW_NS // 100


def test_names_of_a_loop_may_be_any() -> None:
    calls: list[int] = []
    assert loop("start(1)", start=calls.append)(3) > 0
    assert calls == [1, 1, 1]


def test_a_ratio_compares_within_each_round() -> None:
    # In the last round the whole machine was three times as slow.
    slow = measure.Figure(0, 0, 0, (50.0, 52.0, 156.0)), measure.Figure(0, 0, 0, (100.0, 104.0, 312.0))
    assert slow[0].over(slow[1]) == 0.5
