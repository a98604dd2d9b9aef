from kit.callgrind import by_function, less, parse

FILE = """\
positions: line
events: Ir
ob=(1) /lib/_core.so
fl=(1) /src/region.c
fn=(1) region_exit
10 5
+2 3
fi=(2) /src/totals.h
40 7
fe=(1)
13 1
calls=1 100
13 999
fn=(2) other
ob=(2) /lib/python
fl=(3) ceval.c
* 4
ob=(1)
fl=(1)
fn=(1)
10 6
"""


def test_own_costs_are_read_by_line_and_calls_are_left_out() -> None:
    costs = parse(FILE)
    assert costs["/lib/_core.so", "/src/region.c", "region_exit", 10] == 11
    assert costs["/lib/_core.so", "/src/region.c", "region_exit", 12] == 3
    assert costs["/lib/_core.so", "/src/totals.h", "region_exit", 40] == 7
    assert sum(costs.values()) == 26


def test_what_is_inlined_stands_under_its_own_file() -> None:
    shares = by_function({where: float(cost) for where, cost in parse(FILE).items()})
    assert [(share.place, share.instructions) for share in shares][:2] == [
        ("region_exit  (region.c)", 15.0),
        ("region_exit  (totals.h)", 7.0),
    ]


def test_a_base_is_subtracted_place_by_place() -> None:
    one, two = ("b", "f", "fn", 1), ("b", "f", "fn", 2)
    assert less({one: 5.0}, {one: 2.0, two: 1.0}) == {one: 3.0, two: -1.0}
