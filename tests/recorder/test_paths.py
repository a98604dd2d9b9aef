"""Names, paths and what becomes of odd, long and too many of them."""

import pytest

from instrument.recorder import _core


def encoded(*names):
    return "/".join(name.replace("%", "%25").replace("/", "%2F") for name in names)


ODD_NAMES = [
    "plain",
    "with space",
    "a/b",
    "100%",
    "%2F",
    "%25/",
    'say "hi"',
    "back\\slash",
    "line\nbreak\r\ttab",
    "nul\x00inside",
    "\x01\x1f\x7f",
    "emoji 🚀 naïve 日本",
    "\u2028\u2029",
    "",
    "/",
    "long " + "x" * 10_000,
    "long 日本" * 2_000,
]


@pytest.mark.parametrize("name", ODD_NAMES, ids=lambda name: ascii(name)[:20])
def test_a_name_goes_round_whatever_it_holds(recording, name):
    with _core.region("parent of odd"), _core.region(name):
        pass
    span = recording.one(name)
    line = recording.lines[0]
    assert line["name"] == span.name == name
    assert line["path"] == span.path == encoded("parent of odd", name)


@pytest.mark.parametrize("name", ["\ud800", "a\udc80b", "\udfff\ud800"], ids=ascii)
def test_a_lone_surrogate_in_a_name_is_escaped_in_the_file(recording, name):
    with _core.region(name):
        pass
    assert recording.one(name).name == name
    assert recording.lines[0]["name"] == name.encode("utf-8", "backslashreplace").decode()


def test_names_that_differ_only_by_the_encoding_stay_apart(recording):
    with _core.region("x"), _core.region("y"):
        pass
    with _core.region("x/y"):
        pass
    with _core.region("x%2Fy"):
        pass
    assert {span.path for span in recording.spans()} == {"x", "x/y", "x%2Fy", "x%252Fy"}


def test_a_path_tells_its_parent_and_its_site(recording):
    with _core.step(1), _core.region("node"):
        pass
    node, step = recording.records or recording.take()
    name, kind, text, parent, site = _core.path(node.path_index)
    assert (name, kind, text) == ("node", "region", "step/node")
    assert parent == step.path_index
    assert _core.path(parent)[1:4] == ("step", "step", 0)
    assert _core.sites(site)[0].name == "node"


@pytest.mark.parametrize("index", [0, -1, 10**6, 10**30])
def test_a_path_that_does_not_exist_is_an_index_error(recording, index):
    with pytest.raises(IndexError):
        _core.path(index)


def test_one_name_under_two_parents_has_two_paths(recording):
    for parent in ("left", "right"):
        with _core.region(parent), _core.region("leaf"):
            pass
    assert {span.path for span in recording.named("leaf")} == {"left/leaf", "right/leaf"}
    totals = recording.totals()
    assert totals["left/leaf"].count == totals["right/leaf"].count == 1


def recurse(name, depth):
    if depth:
        with _core.region(name):
            recurse(name, depth - 1)


def test_recursion_folds_into_the_eighth_node(recording):
    recurse("fold", 50)
    paths = {"/".join(["fold"] * depth) for depth in range(1, 9)}
    assert {span.path for span in recording.named("fold")} == paths
    totals = recording.totals()
    assert [totals["/".join(["fold"] * depth)].count for depth in range(1, 9)] == [1] * 7 + [43]


def test_folded_spans_keep_their_true_parents(recording):
    recurse("folded", 100)
    spans = sorted(recording.named("folded"), key=lambda span: (span.start, -span.end))
    assert spans[0].parent == 0
    assert [span.parent for span in spans[1:]] == [span.id for span in spans[:-1]]
    assert {span.root for span in spans} == {spans[0].id}


def test_mutual_recursion_folds_each_name_at_its_eighth(recording):
    def ping(depth):
        if depth:
            with _core.region("ping"), _core.region("pong"):
                ping(depth - 1)

    ping(40)
    spans = recording.spans()
    assert len(spans) == 80
    assert max(span.path.count("ping") for span in spans) == 8
    assert max(span.path.count("pong") for span in spans) == 8
    assert sum(total.count for total in recording.totals().values()) == 80


def test_paths_beyond_the_cap_keep_their_site_and_are_counted(recorder):
    recorder.start(max_paths=10)
    leaves = [f"cap {index}" for index in range(16)]
    for _ in range(3):
        for name in leaves:
            with _core.region(name):
                pass
    spans = recorder.spans()
    assert len(spans) == 48
    assert [span.name for span in spans] == leaves * 3
    over = [span for span in spans if span.path.startswith("(overflow)/")]
    assert {span.name for span in over} == set(leaves[10:])
    assert {span.path for span in over} == {f"(overflow)/{name}" for name in leaves[10:]}
    assert recorder.losses() == {"paths": 18}
    totals = recorder.totals()
    assert all(totals[f"(overflow)/{name}"].count == 3 for name in leaves[10:])


def test_a_deep_tree_beyond_the_cap_still_has_right_parents(recorder):
    recorder.start(max_paths=3)

    def nest(depth):
        if depth < 12:
            with _core.region(f"deep {depth}"):
                nest(depth + 1)

    nest(0)
    spans = sorted(recorder.spans(), key=lambda span: (span.start, -span.end))
    assert [span.name for span in spans] == [f"deep {depth}" for depth in range(12)]
    assert [span.parent for span in spans[1:]] == [span.id for span in spans[:-1]]


@pytest.mark.parametrize("cap", [0, -1, 10**6])
def test_a_cap_out_of_range_is_refused(recorder, cap):
    with pytest.raises(ValueError, match="max_paths"):
        _core.start(max_paths=cap)
    assert not _core.active()
