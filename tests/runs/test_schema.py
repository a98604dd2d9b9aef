import json
import re
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from run_builder import RunBuilder, small_run

DOCS = Path(__file__).parents[2] / "docs"
SCHEMA = json.loads((DOCS / "run-file.schema.json").read_text())
VALID = Draft202012Validator(SCHEMA)

SPAN = {
    "type": "span", "id": "00000000000000a1", "name": "scores", "kind": "kernel", "path": "step/scores",
    "start": 1_700_000_000_000_000_000, "dur": 46012, "pid": 1, "tid": 1,
}  # fmt: skip


def test_the_schema_is_one():
    Draft202012Validator.check_schema(SCHEMA)


def test_hand_written_runs_validate():
    run = small_run()
    run.loss("buffer_full", 3)
    run.span("odd%2Fname", 3, flags=["unfinished"], weight=10.0, task="00000000000000ff")
    for line in run.lines:
        VALID.validate(line)


def test_every_example_of_the_documentation_validates():
    blocks = re.findall(r"```json\n(.*?)```", (DOCS / "run-file.md").read_text(), re.DOTALL)
    lines = [json.loads(line) for block in blocks for line in block.splitlines()]
    for line in lines:
        VALID.validate(line)
    assert {line["type"] for line in lines} == set(SCHEMA["properties"]["type"]["enum"])


def test_unknown_fields_are_allowed():
    VALID.validate(SPAN | {"later": {"any": ["thing"]}})


def test_fields_at_their_default_may_stand_there():
    VALID.validate(
        SPAN
        | {"parent": None, "task": None, "step": None, "weight": 1, "status": "ok", "error": None}
        | {"flags": [], "attrs": {}, "measures": {}}
    )


@pytest.mark.parametrize("field", ["id", "name", "kind", "path", "start", "dur", "pid", "tid"])
def test_a_span_needs_what_has_no_default(field):
    line = {key: value for key, value in SPAN.items() if key != field}
    assert not VALID.is_valid(line)


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": "a1"},
        {"id": 161},
        {"id": "00000000000000A1"},
        {"kind": "function"},
        {"dur": -1},
        {"dur": 1.5},
        {"start": "now"},
        {"path": "50%"},
        {"weight": -1},
        {"status": "failed"},
        {"flags": ["odd"]},
        {"flags": ["async", "async"]},
        {"attrs": {"a": {"nested": 1}}},
        {"attrs": {"a": [[1]]}},
        {"measures": {"flops": "many"}},
    ],
)
def test_a_span_with_a_wrong_value_is_refused(wrong):
    assert VALID.is_valid(SPAN)
    assert not VALID.is_valid(SPAN | wrong)


@pytest.mark.parametrize("line", [{}, {"type": "other"}, {"type": None}, [], "span", {"type": "end"}])
def test_what_is_no_line_is_refused(line):
    assert not VALID.is_valid(line)


def test_a_first_line_of_a_newer_schema_is_refused():
    first = RunBuilder().lines[0]
    assert VALID.is_valid(first)
    assert not VALID.is_valid(first | {"schema": 2})
