"""Random programs, run against a reference model in Python of what should have been recorded."""

import collections
import contextlib
import threading
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import instrument
from instrument.recorder import _core

NAMES = ["alpha", "be/ta", "gam%ma", "δέλτα", 'ep"s']
ERRORS = {
    "ValueError": ValueError,
    "KeyError": KeyError,
    "SystemExit": SystemExit,
    "GeneratorExit": GeneratorExit,
}
FOLD = 8


@instrument.kernel(name="model kernel", flops=lambda amount, body: amount)
def kernel(amount, body):
    body()


@instrument.region("model decorated", by="decorator")
def decorated(body):
    body()


attributes = st.dictionaries(
    st.sampled_from(["a", "b", "c"]),
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=20),
    max_size=3,
)
names = st.sampled_from(NAMES)
leaves = st.one_of(
    st.tuples(st.just("mark"), names, attributes),
    st.tuples(st.just("annotate"), attributes),
    st.tuples(st.just("count"), names, st.integers(0, 10)),
    st.tuples(st.just("raise"), st.sampled_from(sorted(ERRORS))),
)
programs = st.recursive(
    st.lists(leaves, max_size=4),
    lambda bodies: st.lists(
        st.one_of(
            leaves,
            st.tuples(st.just("region"), names, attributes, bodies),
            st.tuples(st.just("step"), st.integers(-3, 10**6), attributes, bodies),
            st.tuples(st.just("kernel"), st.integers(0, 100), bodies),
            st.tuples(st.just("decorated"), bodies),
            st.tuples(st.just("catch"), bodies),
            st.tuples(st.just("recurse"), names, st.integers(1, 20), bodies),
        ),
        max_size=5,
    ),
    max_leaves=25,
)


def run(program):
    """The program through the SDK."""
    for kind, *rest in program:
        body = rest[-1]
        if kind == "mark":
            instrument.mark(rest[0], **rest[1])
        elif kind == "annotate":
            instrument.annotate(**rest[0])
        elif kind == "count":
            instrument.count(rest[0], rest[1])
        elif kind == "raise":
            raise ERRORS[rest[0]]
        elif kind == "region":
            with instrument.region(rest[0], **rest[1]):
                run(body)
        elif kind == "step":
            with instrument.step(rest[0], **rest[1]):
                run(body)
        elif kind == "kernel":
            kernel(rest[0], lambda body=body: run(body))
        elif kind == "decorated":
            decorated(lambda body=body: run(body))
        elif kind == "catch":
            with contextlib.suppress(*ERRORS.values()):
                run(body)
        else:
            recurse(rest[0], rest[1], body)


def recurse(name, depth, body):
    with instrument.region(name):
        if depth > 1:
            recurse(name, depth - 1, body)
        else:
            run(body)


class Model:
    """What a program should leave behind: rows in order of completion."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.open: list[dict[str, Any]] = []
        self.unset = 0

    def path(self, name: str, kind: str) -> tuple[tuple[str, str], ...]:
        parent = self.open[-1]["path"] if self.open else ()
        node = (kind, name)
        if parent.count(node) >= FOLD:
            while parent[-1] != node:
                parent = parent[:-1]
            return parent
        return (*parent, node)

    def span(self, kind, name, attrs, body, measures=None, number=None):
        parent = self.open[-1] if self.open else None
        row = {
            "kind": kind,
            "name": name,
            "path": self.path(name, kind),
            "attrs": dict(attrs),
            "error": None,
            "measures": measures or {},
            "parent": parent,
        }
        row["root"] = row if kind == "step" or not parent else parent["root"]
        row["step"] = number if kind == "step" else parent["step"] if parent else None
        self.open.append(row)
        try:
            body()
        except (ValueError, KeyError) as error:
            row["error"] = type(error).__name__
            raise
        finally:
            self.open.pop()
            self.rows.append(row)

    def run(self, program):
        for kind, *rest in program:
            body = rest[-1]
            inside = lambda body=body: self.run(body)  # noqa: E731
            if kind == "mark":
                parent = self.open[-1] if self.open else None
                row = {
                    "kind": "mark",
                    "name": rest[0],
                    "path": self.path(rest[0], "mark"),
                    "attrs": rest[1],
                    "error": None,
                    "measures": {},
                    "parent": parent,
                    "step": parent["step"] if parent else None,
                }
                row["root"] = parent["root"] if parent else row
                self.rows.append(row)
            elif kind == "annotate" and rest[0]:
                if self.open:
                    self.open[-1]["attrs"].update(rest[0])
                else:
                    self.unset += 1
            elif kind == "raise":
                raise ERRORS[rest[0]]
            elif kind == "region":
                self.span("region", rest[0], rest[1], inside)
            elif kind == "step":
                self.span("step", "step", rest[1], inside, number=rest[0])
            elif kind == "kernel":
                self.span("kernel", "model kernel", {}, inside, measures={"flops": float(rest[0])})
            elif kind == "decorated":
                self.span("region", "model decorated", {"by": "decorator"}, inside)
            elif kind == "catch":
                with contextlib.suppress(*ERRORS.values()):
                    self.run(body)
            elif kind == "recurse":
                self.recurse(rest[0], rest[1], inside)

    def recurse(self, name, depth, body):
        def deeper():
            self.recurse(name, depth - 1, body)

        self.span("region", name, {}, body if depth == 1 else deeper)

    def whole(self, program):
        with contextlib.suppress(*ERRORS.values()):
            self.run(program)


def encoded(path):
    return "/".join(name.replace("%", "%25").replace("/", "%2F") for _, name in path)


def assert_like_the_model(records, rows):
    assert len(records) == len(rows)
    record_of = {id(row): record for record, row in zip(records, rows, strict=True)}
    for record, row in zip(records, rows, strict=True):
        said = (
            record.kind,
            record.name,
            record.path,
            record.attrs,
            record.error,
            record.measures,
            record.step,
        )
        expected = ("kind", "name", "path", "attrs", "error", "measures", "step")
        assert said == tuple(encoded(row[key]) if key == "path" else row[key] for key in expected)
        assert record.parent == (record_of[id(row["parent"])].id if row["parent"] else 0)
        assert record.root == record_of[id(row["root"])].id
        assert record.failed == (row["error"] is not None)
        assert record.flags == set()
        if row["parent"]:
            parent = record_of[id(row["parent"])]
            assert parent.start <= record.start <= record.end <= parent.end


def whole(program):
    with contextlib.suppress(*ERRORS.values()):
        run(program)


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(programs, min_size=1, max_size=4), st.sampled_from([1024, 4096, 65536]))
def test_a_random_program_on_several_threads_leaves_what_the_model_says(recorder, program_of, chunk_bytes):
    recorder.stop()
    recorder.start(chunk_bytes=chunk_bytes)
    models = [Model() for _ in program_of]
    for model, program in zip(models, program_of, strict=True):
        model.whole(program)
    threads = [
        threading.Thread(target=whole, args=(program,), name=str(index))
        for index, program in enumerate(program_of)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    records = recorder.take()
    serial_of = {name: serial for serial, _, name in _core.threads()}
    for index, model in enumerate(models):
        mine = [record for record in records if record.thread == serial_of.get(str(index), 0)]
        assert_like_the_model(mine, model.rows)
    expected = collections.Counter(
        (encoded(row["path"]), row["kind"]) for model in models for row in model.rows if row["kind"] != "mark"
    )
    totals = [(*_core.path(row[0])[1:3][::-1], *row[1:]) for row in _core.totals()]
    assert {(path, kind): count for path, kind, count, *_ in totals} == expected
    sums = collections.Counter()
    for record in records:
        if record.kind != "mark":
            sums[record.path, record.kind, "ns"] += record.ns
            sums[record.path, record.kind, "errors"] += record.failed
            sums[record.path, record.kind, "flops"] += record.measures.get("flops", 0)
    for path, kind, _, errors, still_open, sum_ns, _, _, _, _, _, flops, _ in totals:
        assert sum_ns == sums[path, kind, "ns"]
        assert errors == sums[path, kind, "errors"]
        assert flops == sums[path, kind, "flops"]
        assert still_open == 0
    unset = sum(model.unset for model in models)
    lost = {name: count for name, count in recorder.losses().items() if count}
    assert lost == ({"set_without_span": unset} if unset else {})


def test_the_model_itself_folds_and_nests():
    model = Model()
    model.whole([("recurse", "alpha", 10, [("mark", "be/ta", {})]), ("raise", "KeyError")])
    assert [len(row["path"]) for row in model.rows] == [9, *[8] * 3, 7, 6, 5, 4, 3, 2, 1]
    with pytest.raises(KeyError):
        model.run([("raise", "KeyError")])
