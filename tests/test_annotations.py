"""The verbs a developer uses, through the public package."""

import inspect

import pytest

import instrument
from instrument import annotations
from instrument.recorder import _core


def test_every_verb_is_public():
    assert sorted(annotations.__all__) == annotations.__all__
    for name in annotations.__all__:
        assert getattr(instrument, name) is getattr(annotations, name)
        assert name in instrument.__all__


def test_every_verb_says_what_it_does():
    for name in annotations.__all__:
        assert inspect.getdoc(getattr(annotations, name))


def test_the_verbs_together_make_one_tree(recording):
    @instrument.kernel(flops=lambda n: 2 * n)
    def operator(n):
        instrument.annotate(kind="fast")
        return n

    for number in range(2):
        with instrument.step(number, loss=0.5), instrument.region("phase", index=number) as phase:
            assert operator(10) == 10
            phase.set(done=True)
            instrument.mark("half way", at=number)
    instrument.count("tokens", 5)
    instrument.gauge("depth", 2)
    instrument.observe("wait", 0.1)
    name = "test_the_verbs_together_make_one_tree.operator"
    steps, phases, operators, marks = (recording.named(n) for n in ("step", "phase", name, "half way"))
    for number, (step, phase, operator_, mark) in enumerate(
        zip(steps, phases, operators, marks, strict=True)
    ):
        assert (step.kind, phase.kind, operator_.kind, mark.kind) == ("step", "region", "kernel", "mark")
        assert (step.parent, phase.parent, operator_.parent, mark.parent) == (0, step.id, phase.id, phase.id)
        assert {step.root, phase.root, operator_.root, mark.root} == {step.id}
        assert {step.step, phase.step, operator_.step, mark.step} == {number}
        assert step.attrs == {"loss": 0.5}
        assert phase.attrs == {"index": number, "done": True}
        assert operator_.attrs == {"kind": "fast"}
        assert operator_.measures == {"flops": 20.0}
        assert mark.attrs == {"at": number}
        assert operator_.end <= mark.start == mark.end <= phase.end
    assert [(kind, name) for kind, name, *_ in _core.metrics()] == [
        ("count", "tokens"),
        ("gauge", "depth"),
        ("observe", "wait"),
    ]
    assert recording.losses() == {}
    total = recording.totals()[f"step/phase/{name}"]
    assert (total.count, total.measured, total.flops) == (2, 2, 40.0)


def test_kernel_with_and_without_options(recording):
    @instrument.kernel
    def bare():
        return 1

    @instrument.kernel()
    def called():
        return 2

    @instrument.kernel(name="named")
    def renamed():
        return 3

    assert (bare(), called(), renamed()) == (1, 2, 3)
    prefix = "test_kernel_with_and_without_options"
    assert [span.name for span in recording.spans()] == [f"{prefix}.bare", f"{prefix}.called", "named"]


def test_a_keyword_called_name_is_an_attribute_of_a_region_and_a_mark(recording):
    with instrument.region("with name", name="attribute"):
        instrument.mark("mark with name", name="attribute")
    assert recording.one("with name").attrs == {"name": "attribute"}
    assert recording.one("mark with name").attrs == {"name": "attribute"}


def test_nothing_happens_while_nothing_records(recorder):
    @instrument.kernel
    def function():
        with instrument.region("off"), instrument.step():
            instrument.mark("off")
            instrument.annotate(a=1)
            instrument.count("off")
            instrument.gauge("off", 1)
            instrument.observe("off", 1)
        return 5

    assert function() == 5
    recorder.start()
    assert recorder.take() == []
    assert (_core.totals(), _core.metrics(), recorder.losses()) == ([], [], {})


def test_when_disabled_functions_are_returned_unchanged(run_python, monkeypatch):
    monkeypatch.setenv("INSTRUMENT_DISABLED", "1")
    out = run_python(
        "import instrument\n"
        "def f(): return 1\n"
        "async def g(): pass\n"
        "print(instrument.kernel(f) is f, instrument.kernel(flops=lambda nothing: 1)(f) is f)\n"
        "print(instrument.region('r')(f) is f, instrument.kernel(g) is g)\n"
    )
    assert out == "True True\nTrue True\n"


@pytest.mark.parametrize("value", ["0", "false", "off", ""])
def test_disabled_is_read_as_a_word(run_python, monkeypatch, value):
    monkeypatch.setenv("INSTRUMENT_DISABLED", value)
    out = run_python(
        "import instrument\n"
        "from instrument.recorder import _core\n"
        "_core.start()\n"
        "instrument.kernel(lambda: 1)()\n"
        "print(sum(len(chunk) for chunk in _core.take()))\n"
    )
    assert out == "1\n"
