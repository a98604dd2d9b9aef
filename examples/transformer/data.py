"""The corpus and the loader: real text from this repository, cut into prompts and training batches."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import instrument
from transformer import tokenizer

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
DOCUMENTS = ("*.md", "docs/*.md", "LICENSE")
BLANKS = re.compile(r"[ \t]+")  # indentation is most of some documents, and dull to learn

Tokens = NDArray[np.int64]


def documents() -> list[Path]:
    """Our own page first, so that there is always one; then what this repository has to read."""
    found = [path for pattern in DOCUMENTS for path in sorted(REPOSITORY.glob(pattern))]
    return [HERE / "corpus.txt", *found]


@instrument.region("load_corpus")
def load(paths: Sequence[Path]) -> Tokens:
    """Read `paths` as one row of tokens, each document between BEGIN and END. OSError when there is none."""
    tokens: list[int] = []
    for path in paths:
        text = BLANKS.sub(" ", path.read_text(encoding="utf-8", errors="replace"))
        tokens += tokenizer.encode(text, begin=True, end=True)
    instrument.annotate(documents=len(paths), tokens=len(tokens))
    return np.array(tokens, dtype=np.int64)


def training_batches(
    corpus: Tokens, *, batch: int, context: int, rng: np.random.Generator
) -> Iterator[tuple[Tokens, Tokens]]:
    """Endless pairs (inputs, targets) of shape (batch, context); a target is the token after its input."""
    if len(corpus) < context + 2:
        raise ValueError(f"the corpus has {len(corpus)} tokens, too few for a context of {context}")
    while True:
        with instrument.region("load_batch", batch=batch, tokens=batch * context):
            starts = rng.integers(0, len(corpus) - context - 1, size=batch)
            windows = corpus[starts[:, None] + np.arange(context + 1)]
        yield windows[:, :-1], windows[:, 1:]


def passages(corpus: Tokens, *, batch: int, longest: int, rng: np.random.Generator) -> list[list[int]]:
    """Prompts cut out of the corpus, from half as long as `longest` to that long."""
    with instrument.region("load_batch", batch=batch):
        lengths = rng.integers(max(1, longest // 2), longest + 1, size=batch)
        starts = rng.integers(0, max(1, len(corpus) - longest), size=batch)
        return [corpus[s : s + n].tolist() for s, n in zip(starts, lengths, strict=True)]


def pad_left(prompts: Sequence[Sequence[int]]) -> tuple[Tokens, Tokens]:
    """One matrix of all prompts, padded on the left so that they end together; and the pads of each row."""
    width = max(map(len, prompts))
    tokens = np.full((len(prompts), width), tokenizer.PAD, dtype=np.int64)
    for row, prompt in enumerate(prompts):
        tokens[row, width - len(prompt) :] = prompt
    return tokens, np.array([width - len(prompt) for prompt in prompts], dtype=np.int64)
