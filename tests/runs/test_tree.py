from instrument.runs.stats import Stats
from instrument.runs.tree import build_tree, label, select, walk


def stats(**sums):
    return {path: Stats(count=1, sum_ns=ns, self_ns=ns) for path, ns in sums.items()}


def shape(roots):
    return [("  " * node.depth) + node.name for node in walk(roots)]


PATHS = {"a": 100, "a/b": 60, "a/b/d": 50, "a/c": 30, "z": 10}


def tree(sort="total"):
    return build_tree({path: Stats(count=1, sum_ns=ns, self_ns=ns) for path, ns in PATHS.items()}, sort=sort)


def test_children_stand_under_their_parent_the_largest_first():
    assert shape(tree()) == ["a", "  b", "    d", "  c", "z"]


def test_rows_can_be_sorted_by_name():
    assert shape(build_tree(stats(b=1, a=2, c=9), sort="name")) == ["a", "b", "c"]


def test_equal_rows_stand_in_the_order_of_their_names():
    assert shape(build_tree(stats(b=1, a=1, c=1))) == ["a", "b", "c"]


def test_a_parent_without_numbers_gets_a_node_and_what_its_children_took():
    roots = build_tree({"a/b": Stats(count=1, sum_ns=5), "a/c": Stats(count=1, sum_ns=6)})
    assert shape(roots) == ["a", "  c", "  b"]
    assert (roots[0].stats.count, roots[0].inclusive_ns) == (0, 11)


def test_an_open_parent_took_as_long_as_it_is_known_to_run():
    roots = build_tree({"a": Stats(open=1, open_ns=50), "a/b": Stats(count=1, sum_ns=20)})
    assert roots[0].inclusive_ns == 50


def test_names_show_what_their_path_encodes():
    assert label("step/50%25 a%2Fb") == "50% a/b"
    assert label("%252F") == "%2F"


def test_the_largest_are_selected_with_what_leads_to_them():
    kept = select(tree("self"), 2, sort="self")
    assert shape(kept) == ["a", "  b"]
    assert [node.hidden for node in walk(kept)] == [1, 1]
    assert shape(select(tree("count"), 0)) == shape(tree("count"))


def test_a_deep_leaf_brings_its_ancestors():
    sums = {"a": 1, "a/b": 1, "a/b/c": 1, "a/b/c/d": 900, "x": 5}
    roots = build_tree({path: Stats(count=1, sum_ns=ns, self_ns=ns) for path, ns in sums.items()})
    assert shape(select(roots, 1)) == ["a", "  b", "    c", "      d"]


def test_names_that_look_like_parts_of_each_other_are_apart():
    roots = build_tree(stats(**{"a": 1, "a b": 2, "a-b": 3, "a/b": 4}))
    assert shape(roots) == ["a-b", "a b", "a", "  b"]


def test_a_very_deep_path_is_no_trouble():
    roots = build_tree({"/".join(["f"] * 5000): Stats(count=1, sum_ns=7)})
    nodes = list(walk(roots))
    assert roots[0].inclusive_ns == 7
    assert len(nodes) <= 2001
    assert shape(select(roots, 1))
