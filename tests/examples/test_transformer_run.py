"""The example as a program: what it prints, and that its run file says exactly what the architecture says."""

import importlib.util
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from transformer import flops, summary
from transformer.weights import Config

REPOSITORY = Path(__file__).resolve().parents[2]
EXAMPLE = REPOSITORY / "examples" / "transformer"
HAS_TORCH = importlib.util.find_spec("torch") is not None
needs_torch = pytest.mark.skipif(
    not HAS_TORCH, reason="TORCH IS NOT INSTALLED: its backend is not tested here"
)

CONFIG = Config(width=16, layers=3, heads=2, context=32)
BATCH, TOKENS, TRAIN_STEPS, TRAIN_BATCH = 2, 6, 5, 3
PROMPTS = ("To measure is to know.", "A zero")
WIDTH = 1 + len(PROMPTS[0])  # the longest prompt and its begin token; the other one is padded to it
SIZES = [
    "--width=16", "--layers=3", "--heads=2", "--context=32", f"--tokens={TOKENS}", "--ignore-end",
    f"--train-steps={TRAIN_STEPS}", f"--train-batch={TRAIN_BATCH}", "--train-context=32", "--rate=0.01",
    *(f"--prompt={prompt}" for prompt in PROMPTS),
]  # fmt: skip


def start(command: Sequence[object], cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("INSTRUMENT_")}
    return subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=cwd,
        env=clean | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


@dataclass(frozen=True)
class Run:
    output: str
    lines: list[dict[str, Any]]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["type"] == kind]

    def kernels(self, under: str) -> dict[str, tuple[int, int]]:
        """Calls and FLOPs by operator, of the totals below a path."""
        found: dict[str, tuple[int, int]] = {}
        for total in self.of("total"):
            if total["kind"] == "kernel" and total["path"].startswith(under):
                calls, work = found.get(total["name"], (0, 0))
                found[total["name"]] = (
                    calls + total["count"],
                    work + int(total.get("measures", {}).get("flops", 0)),
                )
        return found


@pytest.fixture(scope="module", params=["numpy", pytest.param("torch", marks=needs_torch)])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp(request.param)
    done = start([EXAMPLE, f"--backend={request.param}", *SIZES, "--export=json:run.jsonl"], folder)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    lines = [json.loads(line) for line in (folder / "run.jsonl").read_text().splitlines()]
    return Run(done.stdout, lines)


def as_measured(expected: flops.Expected) -> dict[str, tuple[int, int]]:
    return {name: (calls, expected.flops[name]) for name, calls in expected.calls.items()}


def test_every_operator_ran_as_often_as_the_layers_and_steps_say(run: Run) -> None:
    steps = TOKENS - 1
    forwards = 1 + steps
    calls = {name: calls for name, (calls, _) in run.kernels("generate").items()}
    assert calls == {
        "embed": forwards,
        "add": forwards * CONFIG.layers * 2,
        "layer_norm": forwards * (CONFIG.layers * 2 + 1),
        "linear": forwards * (CONFIG.layers * 4 + 1),
        "scores": forwards * CONFIG.layers,
        "softmax": forwards * CONFIG.layers,
        "mix": forwards * CONFIG.layers,
        "gelu": forwards * CONFIG.layers,
        "Cache.append": forwards * CONFIG.layers,
        "sample": forwards,
    }


def test_generating_costs_what_the_architecture_says(run: Run) -> None:
    expected = flops.generation(CONFIG, batch=BATCH, width=WIDTH, steps=TOKENS - 1)
    assert run.kernels("generate") == as_measured(expected)


def test_training_costs_what_the_architecture_says(run: Run) -> None:
    if "over numpy" in run.output:
        assert run.kernels("train") == {}
    else:
        expected = flops.training(CONFIG, batch=TRAIN_BATCH, context=32, steps=TRAIN_STEPS)
        assert run.kernels("train") == as_measured(expected)


def test_the_spans_add_up_to_the_totals(run: Run) -> None:
    counts, times, work = Counter[str](), Counter[str](), Counter[str]()
    for span in run.of("span"):
        counts[span["path"]] += 1
        times[span["path"]] += span["dur"]
        work[span["path"]] += int(span.get("measures", {}).get("flops", 0))
    totals = run.of("total")
    assert counts == {total["path"]: total["count"] for total in totals}
    assert times == {total["path"]: total["sum_ns"] for total in totals}
    assert work == {total["path"]: int(total.get("measures", {}).get("flops", 0)) for total in totals}
    assert run.of("loss") == []


def test_every_line_is_valid(run: Run) -> None:
    schema = json.loads((REPOSITORY / "docs" / "run-file.schema.json").read_text())
    validator = jsonschema.Draft202012Validator(schema)
    for line in run.lines:
        validator.validate(line)
    assert run.lines[0]["type"] == "run"
    assert run.lines[-1]["type"] == "end"


def test_steps_carry_their_numbers_and_their_spans_lie_inside_them(run: Run) -> None:
    steps = [span for span in run.of("span") if span["path"] == "generate/decode/step"]
    assert [span["step"] for span in steps] == list(range(TOKENS - 1))
    by_id = {span["id"]: span for span in run.of("span")}
    layers = [span for span in by_id.values() if span["path"] == "generate/decode/step/forward/layer"]
    assert len(layers) == (TOKENS - 1) * CONFIG.layers
    for layer in layers:
        assert layer["attrs"]["index"] in range(CONFIG.layers)
        forward = by_id[layer["parent"]]
        assert forward["start"] <= layer["start"]
        assert layer["start"] + layer["dur"] <= forward["start"] + forward["dur"]
        assert by_id[forward["parent"]]["step"] == layer["step"]


def test_the_context_grows_by_one_a_step(run: Run) -> None:
    scores = [
        span["attrs"] for span in run.of("span") if span["name"] == "scores" and "decode" in span["path"]
    ]
    assert scores == [
        {"batch": BATCH, "heads": CONFIG.heads, "queries": 1, "keys": WIDTH + 1 + step}
        for step in range(TOKENS - 1)
        for _ in range(CONFIG.layers)
    ]


def test_tokens_are_counted_and_steps_observed(run: Run) -> None:
    metrics = {(m["name"], *m["labels"].values()): m for m in run.of("metric")}  # the last of a series wins
    assert metrics["tokens", "prefill"]["sum"] == sum(1 + len(prompt) for prompt in PROMPTS)
    assert metrics["tokens", "decode"]["sum"] == BATCH * (TOKENS - 1)
    assert metrics["step_seconds",]["count"] == TOKENS - 1
    if "over torch" in run.output:
        assert metrics["tokens", "train"]["sum"] == TRAIN_STEPS * TRAIN_BATCH * 32
        losses = [s["attrs"]["loss"] for s in run.of("span") if s["path"] == "train/step"]
        assert len(losses) == TRAIN_STEPS
        assert losses[-1] < losses[0]
        assert metrics["loss",]["last"] == losses[-1]


def test_the_output_has_texts_the_report_operators_and_rates(run: Run) -> None:
    for prompt in PROMPTS:
        assert f"  {prompt} | " in run.output
    report, operators = run.output.split("\noperator ")
    assert "generate" in report
    assert "GFLOP/s" in report
    for name, (calls, _) in run.kernels("").items():
        assert f"\n{name:14} {calls:8,} " in operators
    assert "FLOPs are those that the architecture's formula gives" in operators
    assert operators.count(" tokens/s") == 2
    assert "run.jsonl" in operators.splitlines()[-1]


def test_an_operator_that_differs_from_the_formula_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    path = {"kind": "kernel", "name": "mix", "count": 2, "total_ns": 5000, "measures": {"flops": 70.0}}
    expected = flops.Expected()
    expected.expect("mix", 4, 150)
    summary.operators([path, path], expected)
    assert "mix: 4 calls and 140 FLOPs, not 4 and 150" in capsys.readouterr().out
    expected.expect("mix", 0, -10)
    expected.expect("gelu", 1)
    summary.operators([path, path], expected)
    assert "gelu: 0 calls and 0 FLOPs, not 1 and 0" in capsys.readouterr().out
    expected.expect("gelu", -1)
    summary.operators([path, path], expected)
    assert "all 4 calls and 140 FLOPs" in capsys.readouterr().out


def test_switched_off_it_generates_all_the_same(tmp_path: Path) -> None:
    done = start([EXAMPLE, "--small"], tmp_path, INSTRUMENT_DISABLED="1")
    assert done.returncode == 0, done.stderr
    assert "nothing was recorded" in done.stdout


def test_without_options_it_says_where_its_run_file_is(tmp_path: Path) -> None:
    done = start([EXAMPLE, "--small"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "runs/transformer.jsonl" in done.stdout
    again = start([EXAMPLE, "--small"], tmp_path)
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "runs" / "transformer.jsonl").stat().st_size > 1000


@pytest.mark.parametrize("way", ["environment", "command"])
def test_under_a_session_that_is_on_already_it_records_into_that_one(tmp_path: Path, way: str) -> None:
    if way == "environment":
        done = start([EXAMPLE, "--small"], tmp_path, INSTRUMENT_EXPORT="json:outer.jsonl")
    else:
        done = start(
            ["-m", "instrument", "run", "--export", "json:outer.jsonl", EXAMPLE, "--small"], tmp_path
        )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (tmp_path / "outer.jsonl").read_text().splitlines()]
    assert any(line["type"] == "span" and line["name"] == "scores" for line in lines)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--corpus=missing.txt"], "missing.txt"),
        (["--width=10", "--heads=4"], "width 10 is not a multiple of heads 4"),
        (["--context=5"], "exceed a context of 5"),
        (["--load=missing.npz"], "missing.npz"),
        (["--export=jsn:x"], "jsn"),
    ],
)
def test_wrong_use_is_one_line_and_exit_code_2(tmp_path: Path, arguments: list[str], message: str) -> None:
    done = start([EXAMPLE, "--small", *arguments], tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.skipif(HAS_TORCH, reason="torch is installed")
def test_without_torch_its_backend_is_one_line(tmp_path: Path) -> None:
    done = start([EXAMPLE, "--small", "--backend=torch"], tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "pip install torch" in done.stderr


@needs_torch
def test_what_torch_trained_numpy_continues_with_the_same_text(tmp_path: Path) -> None:
    common = ["--prompt=To measure", "--temperature=0", "--tokens=5"]
    torch = start([EXAMPLE, "--small", "--backend=torch", "--save=w.npz", *common], tmp_path)
    assert torch.returncode == 0, torch.stderr
    numpy = start([EXAMPLE, "--load=w.npz", *common], tmp_path)
    assert numpy.returncode == 0, numpy.stderr

    def text(output: str) -> str:
        return next(line for line in output.splitlines() if line.startswith("  To measure | "))

    assert text(torch.stdout) == text(numpy.stdout)
