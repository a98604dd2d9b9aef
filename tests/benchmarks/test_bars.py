from kit.bars import Bar, evaluate, event_sizes
from kit.measure import Figure


def test_a_bar_is_met_on_its_side_only() -> None:
    assert Bar("x", "<=", 1.1, 0.85, 1.1).verdict == "met"
    assert Bar("x", "<=", 1.1, 0.85, 0.85).verdict == "stretch"
    assert Bar("x", "<=", 1.1, 0.85, 1.2).verdict == "MISSED"
    assert Bar("x", ">=", 6, 8, 5.9).verdict == "MISSED"
    assert Bar("x", ">=", 6, 8, 8).verdict == "stretch"


def test_a_bar_whose_peer_is_missing_says_why() -> None:
    costs = {
        name: Figure(ns, ns, ns, (ns, 3 * ns))
        for name, ns in {
            "region": 50.0,
            "with, empty C type": 100.0,
            "C limit": 20.0,
            "kernel, added": 30.0,
        }.items()
    }
    rows = evaluate(30.0, costs, costs, {"plain": 32.1, "2 attributes": 56.0}, {}, {"torch": "not installed"})
    by_name = {row.what: row for row in rows}
    torch = by_name["torch record_function, profiler off / recording region"]
    assert torch.verdict == "unmeasured"
    assert "torch: not installed" in torch.line()
    assert by_name["recording region / empty with on a C type"].value == 0.5
    assert by_name["bytes per event, plain"].verdict == "stretch"


def test_a_plain_span_takes_32_bytes_and_one_with_2_attributes_at_most_64() -> None:
    sizes = event_sizes()
    assert 32 <= sizes["plain"] < 33
    assert sizes["2 attributes"] <= 64
