"""The command line: every size has an option."""

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

DESCRIPTION = "Read text, build or load a model, train it where torch can, generate, and say how it went."
SMALL = {
    "width": 32, "layers": 2, "heads": 4, "context": 48, "batch": 2, "batches": 1, "prompt_tokens": 16,
    "tokens": 8, "train_steps": 6, "train_batch": 2,
}  # fmt: skip


def parser() -> argparse.ArgumentParser:
    """All options with their defaults."""
    p = argparse.ArgumentParser(
        prog="transformer",
        description=DESCRIPTION,
        epilog="It computes with one thread, unless OMP_NUM_THREADS or OPENBLAS_NUM_THREADS says otherwise.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    p.add_argument("--backend", choices=("numpy", "torch"), default="numpy", help="what computes")
    p.add_argument("--device", default="cpu", help="where torch computes")
    p.add_argument("--small", action="store_true", help="tiny sizes: a run of a moment, for tests")
    text = p.add_argument_group("text")
    text.add_argument("--prompt", action="append", metavar="TEXT", help="continue this; repeat for a batch")
    text.add_argument(
        "--batch", type=int, default=8, help="passages of the corpus to continue, without --prompt"
    )
    text.add_argument("--batches", type=int, default=4, help="how many such batches")
    text.add_argument("--prompt-tokens", type=int, default=64, help="longest passage")
    text.add_argument("--tokens", type=int, default=80, help="tokens to generate for each prompt")
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


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The options in `argv`; `--small` only changes the defaults of the others."""
    p = parser()
    if "--small" in argv:
        p.set_defaults(**SMALL)
    return p.parse_args(argv)


def default_export() -> str:
    """A run file under the current directory, or a temporary one where nothing can be written there."""
    folder = Path("runs")
    try:
        folder.mkdir(exist_ok=True)
    except OSError:
        folder = Path(tempfile.mkdtemp(prefix="transformer-"))
    return f"json:{folder / 'transformer.jsonl'}"
