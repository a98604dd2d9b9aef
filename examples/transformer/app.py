"""The program: read text, build or load a model, train it where torch can, generate, say how it went."""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import instrument
from transformer import data, flops, numpy_ops, tokenizer, weights
from transformer.generate import Generated, Sampling, generate
from transformer.model import Ops

SMALL = {
    "width": 32, "layers": 2, "heads": 4, "context": 48, "batch": 2, "batches": 1, "prompt_tokens": 16,
    "tokens": 8, "train_steps": 6, "train_batch": 2,
}  # fmt: skip


def parser() -> argparse.ArgumentParser:
    """The command line; every size has an option."""
    p = argparse.ArgumentParser(
        prog="transformer", description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    p.add_argument("--backend", choices=("numpy", "torch"), default="numpy", help="what computes")
    p.add_argument("--device", default="cpu", help="where torch computes")
    p.add_argument("--small", action="store_true", help="tiny sizes: a run of a moment, for tests")
    text = p.add_argument_group("text")
    text.add_argument("--prompt", action="append", metavar="TEXT", help="continue this; repeat for a batch")
    text.add_argument(
        "--batch", type=int, default=8, help="passages of the corpus to continue, without --prompt"
    )
    text.add_argument("--batches", type=int, default=3, help="how many such batches")
    text.add_argument("--prompt-tokens", type=int, default=64, help="longest passage")
    text.add_argument("--tokens", type=int, default=64, help="tokens to generate for each prompt")
    text.add_argument(
        "--corpus", action="append", type=Path, metavar="FILE", help="text instead of our documents"
    )
    sampling = p.add_argument_group("sampling")
    sampling.add_argument("--temperature", type=float, default=0.7, help="0 takes the likeliest token")
    sampling.add_argument("--top-k", type=int, default=12, help="consider that many tokens; 0 considers all")
    sampling.add_argument("--ignore-end", action="store_true", help="go on after a row's end token")
    sampling.add_argument("--seed", type=int, default=0, help="of weights, batches and sampling")
    model = p.add_argument_group("model")
    model.add_argument("--width", type=int, default=256)
    model.add_argument("--layers", type=int, default=4)
    model.add_argument("--heads", type=int, default=8)
    model.add_argument("--context", type=int, default=192, help="most tokens that a row can have")
    model.add_argument("--train-steps", type=int, default=16, help="steps before generating, torch only")
    model.add_argument("--train-batch", type=int, default=4, help="rows of a training batch")
    model.add_argument(
        "--train-context", type=int, default=96, help="tokens of such a row, at most --context"
    )
    model.add_argument("--rate", type=float, default=2e-3, help="learning rate")
    model.add_argument("--load", type=Path, metavar="NPZ", help="weights that --save wrote")
    model.add_argument("--save", type=Path, metavar="NPZ", help="keep the weights")
    p.add_argument("--export", help="where the run goes, as json:run.jsonl (default: runs/transformer.jsonl)")
    return p


def default_export() -> str:
    """A run file under the current directory, or a temporary one where nothing can be written there."""
    folder = Path("runs")
    try:
        folder.mkdir(exist_ok=True)
    except OSError:
        folder = Path(tempfile.mkdtemp(prefix="transformer-"))
    return f"json:{folder / 'transformer.jsonl'}"


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
    options: argparse.Namespace, ops: Ops, corpus: data.Tokens
) -> tuple[weights.Config, weights.Weights]:
    """Load a model, or make one and train it; without training, its output layer is fitted to the corpus."""
    if options.load:
        model, config = weights.load(options.load)
    else:
        config = weights.Config(options.width, options.layers, options.heads, options.context)
        model = weights.initial(config, seed=options.seed)
    print(
        f"{config.layers} layers of width {config.width}, {model.parameters:,} parameters, over {ops.NAME}; "
        f"a corpus of {len(corpus):,} tokens"
    )
    if ops.NAME == "torch" and options.train_steps:
        return config, trained(options, ops, config, model.map(ops.from_numpy), corpus)
    if not options.load:
        print("not trained: the output layer is fitted to the corpus's pairs of tokens")
        model = weights.with_bigram_head(model, corpus)
    return config, model.map(ops.from_numpy)


def trained(
    options: argparse.Namespace, ops: Ops, config: weights.Config, model: weights.Weights, corpus: data.Tokens
) -> weights.Weights:
    """Train `model` in place, and say how the loss went."""
    from transformer.train import train

    rng = np.random.default_rng([options.seed, 1])
    context = min(config.context, options.train_context)
    batches = data.training_batches(corpus, batch=options.train_batch, context=context, rng=rng)
    losses = train(ops, config, model, batches, steps=options.train_steps, rate=options.rate)
    print(f"trained {len(losses)} steps: loss {losses[0]:.3f} -> {losses[-1]:.3f} nats a token")
    return model


def serve(
    options: argparse.Namespace, ops: Ops, config: weights.Config, model: weights.Weights, corpus: data.Tokens
) -> list[Generated]:
    """Generate for every batch of prompts, and print the first texts."""
    rng = np.random.default_rng([options.seed, 2])
    sampling = Sampling(options.temperature, options.top_k, options.ignore_end)
    done = []
    for number in range(1 if options.prompt else options.batches):
        if options.prompt:
            prompts = [tokenizer.encode(text, begin=True) for text in options.prompt]
        else:
            prompts = data.passages(corpus, batch=options.batch, longest=options.prompt_tokens, rng=rng)
        with instrument.region("generate", batch=len(prompts), number=number):
            result = generate(
                ops, config, model, prompts, new_tokens=options.tokens, sampling=sampling, rng=rng
            )
        for prompt, answer in list(zip(prompts, result.tokens, strict=True))[: None if options.prompt else 2]:
            print(
                f"  {tokenizer.show(tokenizer.decode(prompt))} | {tokenizer.show(tokenizer.decode(answer))}"
            )
        done.append(result)
    return done


def work(options: argparse.Namespace) -> None:
    """Everything between starting and stopping the record."""
    ops = backend(options.backend, options.device)
    corpus = data.load(options.corpus or data.documents())
    config, model = prepare(options, ops, corpus)
    if options.save:
        weights.save(options.save, model.map(ops.to_numpy), config)
        print(f"saved {options.save}")
    print("prompt | continuation")
    summarise(config, serve(options, ops, config, model, corpus))


def summarise(config: weights.Config, results: Sequence[Generated]) -> None:
    """Tokens per second of both phases, and what the architecture says they cost."""
    prompt, decoded = sum(r.prompt_tokens for r in results), sum(r.decoded for r in results)
    prefill, decode = sum(r.prefill_seconds for r in results), sum(r.decode_seconds for r in results)
    expected = flops.Expected()
    for r in results:
        batch = len(r.tokens)
        expected += flops.generation(
            config, batch=batch, width=r.padded_tokens // batch, steps=r.decode_steps
        )
    print(f"prefill {prompt:7,} tokens in {prefill:6.3f} s  {prompt / max(prefill, 1e-9):9,.0f} tokens/s")
    print(f"decode  {decoded:7,} tokens in {decode:6.3f} s  {decoded / max(decode, 1e-9):9,.0f} tokens/s")
    print(
        f"generating costs {expected.flops.total() / 1e9:.3f} GFLOP in {expected.calls.total():,} operator "
        "calls, by the architecture's formula"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; 0 when it went well, 2 for wrong options or unreadable files."""
    argv = sys.argv[1:] if argv is None else argv
    p = parser()
    with instrument.region("options") as reading:
        if "--small" in argv:
            p.set_defaults(**SMALL)
        options = p.parse_args(argv)
        # Somebody records already: `instrument run`, or INSTRUMENT_EXPORT. There is one session at a time.
        recorded = reading.recording
    try:
        if recorded:
            work(options)
            print("recorded by the session that was on already")
        else:
            with instrument.session(export=[options.export or default_export()]) as session:
                work(options)
            summary = session.stop()  # it is stopped; this gives what it left behind
            print(session.report(), summary, sep="\n")
    except (OSError, ValueError) as error:  # ConfigError is a ValueError
        print(f"{p.prog}: {error}", file=sys.stderr)
        return 2
    return 0
