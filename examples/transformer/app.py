"""The program: read text, build or load a model, train it where torch can, generate, say how it went."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

import instrument
from transformer import data, flops, numpy_ops, options, summary, tokenizer, weights
from transformer.generate import Generated, Sampling, generate
from transformer.model import Ops


@dataclass(slots=True)
class Done:
    """What a run of the program did, for its summary."""

    generated: list[Generated] = field(default_factory=list)
    expected: flops.Expected = field(default_factory=flops.Expected)


def backend(name: str, device: str) -> Ops:
    """The operators by name. torch is imported only when asked for; ValueError where there is none."""
    if name == "numpy":
        return numpy_ops
    if find_spec("torch") is None:
        raise ValueError("torch is not installed: `pip install torch`, or use --backend numpy")
    import_module("torch").set_default_device(device)
    module: Any = import_module(f"{__package__}.torch_ops")
    return module  # type: ignore[no-any-return]


def prepare(
    asked: argparse.Namespace, ops: Ops, corpus: data.Tokens, done: Done
) -> tuple[weights.Config, weights.Weights]:
    """Load a model, or make one and train it; without training, its output layer is fitted to the corpus."""
    if asked.load:
        model, config = weights.load(asked.load)
    else:
        config = weights.Config(asked.width, asked.layers, asked.heads, asked.context)
        model = weights.initial(config, seed=asked.seed)
    print(
        f"{config.layers} layers of width {config.width}, {model.parameters:,} parameters, over {ops.NAME}; "
        f"a corpus of {len(corpus):,} tokens"
    )
    if ops.NAME == "torch" and asked.train_steps:
        model = model.map(ops.from_numpy)
        train(asked, ops, config, model, corpus, done)
        return config, model
    if not asked.load:
        print("not trained: the output layer is fitted to the corpus's pairs of tokens")
        model = weights.with_bigram_head(model, corpus)
    return config, model.map(ops.from_numpy)


def train(
    asked: argparse.Namespace,
    ops: Ops,
    config: weights.Config,
    model: weights.Weights,
    corpus: data.Tokens,
    done: Done,
) -> None:
    """Train `model` in place, and say how the loss went."""
    from transformer.train import train as run

    rng = np.random.default_rng([asked.seed, 1])
    batch, context, steps = asked.train_batch, min(config.context, asked.train_context), asked.train_steps
    batches = data.training_batches(corpus, batch=batch, context=context, rng=rng)
    losses = run(ops, config, model, batches, steps=steps, rate=asked.rate)
    print(f"trained {len(losses)} steps: loss {losses[0]:.3f} -> {losses[-1]:.3f} nats a token")
    done.expected += flops.training(config, batch=batch, context=context, steps=steps)


def serve(
    asked: argparse.Namespace,
    ops: Ops,
    config: weights.Config,
    model: weights.Weights,
    corpus: data.Tokens,
    done: Done,
) -> None:
    """Generate for every batch of prompts, and print the first texts."""
    rng = np.random.default_rng([asked.seed, 2])
    sampling = Sampling(asked.temperature, asked.top_k, asked.ignore_end)
    print("prompt | continuation")
    for number in range(1 if asked.prompt else asked.batches):
        if asked.prompt:
            prompts = [tokenizer.encode(text, begin=True) for text in asked.prompt]
        else:
            prompts = data.passages(corpus, batch=asked.batch, longest=asked.prompt_tokens, rng=rng)
        batch = len(prompts)
        with instrument.region("generate", batch=batch, number=number):
            result = generate(
                ops, config, model, prompts, new_tokens=asked.tokens, sampling=sampling, rng=rng
            )
        shown = list(zip(prompts, result.tokens, strict=True))[: None if asked.prompt else 2]
        for texts in shown:
            print("  " + " | ".join(tokenizer.show(tokenizer.decode(text)) for text in texts))
        width = result.padded_tokens // batch
        done.generated.append(result)
        done.expected += flops.generation(config, batch=batch, width=width, steps=result.decode_steps)


def work(asked: argparse.Namespace) -> Done:
    """Everything between starting and stopping the record."""
    done = Done()
    ops = backend(asked.backend, asked.device)
    corpus = data.load(asked.corpus or data.documents())
    config, model = prepare(asked, ops, corpus, done)
    if asked.save:
        weights.save(asked.save, model.map(ops.to_numpy), config)
        print(f"saved {asked.save}")
    serve(asked, ops, config, model, corpus, done)
    return done


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; 0 when it went well, 2 for wrong options or unreadable files."""
    with instrument.region("options") as reading:
        asked = options.parse(sys.argv[1:] if argv is None else argv)
        # Somebody records already: `instrument run`, or INSTRUMENT_EXPORT. There is one session at a time.
        recorded = reading.recording
    try:
        if recorded:
            done = work(asked)
            summary.speeds(done.generated)
            print("recorded by the session that was on already")
            return 0
        with instrument.session(export=[asked.export or options.default_export()]) as session:
            done = work(asked)
    except (OSError, ValueError) as error:  # ConfigError is a ValueError
        print(f"transformer: {error}", file=sys.stderr)
        return 2
    report = session.report()
    print(report)
    summary.operators(report.as_dict()["paths"], done.expected)
    summary.speeds(done.generated)
    print(session.stop())  # it is stopped already; this says again what it left behind
    return 0
