"""The architecture's sizes and its weights: made from a seed, saved, and moved to another backend."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import DTypeLike, NDArray

import instrument
from transformer import tokenizer

Array = Any  # a numpy array or a torch tensor


@dataclass(frozen=True, slots=True)
class Config:
    """Sizes of a model. `context` bounds prompt and generated tokens together."""

    width: int = 256
    layers: int = 4
    heads: int = 8
    context: int = 192
    vocabulary: int = tokenizer.VOCABULARY

    def __post_init__(self) -> None:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not a multiple of heads {self.heads}")

    @property
    def hidden(self) -> int:
        """Width inside the MLP."""
        return 4 * self.width


@dataclass(frozen=True, slots=True)
class Layer:
    """Weights of one block. Matrices are (in, out)."""

    norm1_gain: Array
    norm1_bias: Array
    qkv: Array
    qkv_bias: Array
    out: Array
    out_bias: Array
    norm2_gain: Array
    norm2_bias: Array
    up: Array
    up_bias: Array
    down: Array
    down_bias: Array


@dataclass(frozen=True, slots=True)
class Weights:
    """All weights of a model."""

    token_table: Array
    position_table: Array
    layers: tuple[Layer, ...]
    norm_gain: Array
    norm_bias: Array
    head: Array
    head_bias: Array

    def named(self) -> Iterator[tuple[str, Array]]:
        """Every array with its dotted name."""
        for field in fields(self):
            if field.name != "layers":
                yield field.name, getattr(self, field.name)
        for index, layer in enumerate(self.layers):
            for field in fields(layer):
                yield f"layers.{index}.{field.name}", getattr(layer, field.name)

    def map(self, convert: Callable[[Array], Array]) -> "Weights":
        """The same weights with every array converted, as to another backend."""
        return from_named({name: convert(array) for name, array in self.named()})

    @property
    def parameters(self) -> int:
        """How many numbers there are to learn."""
        return sum(int(np.prod(array.shape)) for _, array in self.named())


def from_named(arrays: dict[str, Array]) -> Weights:
    """The weights whose `named` this is. KeyError when one is missing."""
    count = 1 + max(int(name.split(".")[1]) for name in arrays if name.startswith("layers."))
    layers = tuple(
        Layer(**{field.name: arrays[f"layers.{index}.{field.name}"] for field in fields(Layer)})
        for index in range(count)
    )
    return Weights(
        layers=layers,
        **{field.name: arrays[field.name] for field in fields(Weights) if field.name != "layers"},
    )


def initial(config: Config, *, seed: int, dtype: DTypeLike = np.float32) -> Weights:
    """Random weights, the residual branches small so that a deep model starts near the identity."""
    rng = np.random.default_rng(seed)
    d, h = config.width, config.hidden

    def normal(*shape: int, scale: float) -> NDArray[Any]:
        return (scale * rng.standard_normal(shape)).astype(dtype)

    def ones() -> NDArray[Any]:
        return np.ones(d, dtype)

    def zeros(size: int) -> NDArray[Any]:
        return np.zeros(size, dtype)

    branch = 0.02 / (2 * config.layers) ** 0.5
    layers = tuple(
        Layer(
            norm1_gain=ones(),
            norm1_bias=zeros(d),
            qkv=normal(d, 3 * d, scale=d**-0.5),
            qkv_bias=zeros(3 * d),
            out=normal(d, d, scale=branch),
            out_bias=zeros(d),
            norm2_gain=ones(),
            norm2_bias=zeros(d),
            up=normal(d, h, scale=d**-0.5),
            up_bias=zeros(h),
            down=normal(h, d, scale=branch),
            down_bias=zeros(d),
        )
        for _ in range(config.layers)
    )
    return Weights(
        token_table=normal(config.vocabulary, d, scale=1.0),
        position_table=normal(config.context, d, scale=0.02),
        layers=layers,
        norm_gain=ones(),
        norm_bias=zeros(d),
        head=normal(d, config.vocabulary, scale=0.02),
        head_bias=zeros(config.vocabulary),
    )


@instrument.region("fit_head")
def with_bigram_head(weights: Weights, corpus: NDArray[np.int64]) -> Weights:
    """Replace the output matrix by one that predicts each token from the token before it.

    A model that was never trained would write noise. The statistics of token pairs cost one least-squares fit
    and give its text the look of the corpus, where there is no torch to train with.
    """
    table = weights.token_table
    size = len(table)
    pairs = np.bincount(corpus[:-1] * size + corpus[1:], minlength=size * size).reshape(size, size)
    seen = pairs.sum(axis=1) > 0
    logarithms = np.log(pairs[seen] + 0.02)
    logarithms -= logarithms.max(axis=1, keepdims=True)
    inputs = table[seen].astype(np.float64)
    inputs -= inputs.mean(axis=1, keepdims=True)
    inputs /= inputs.std(axis=1, keepdims=True)
    bias = logarithms.mean(axis=0)
    head = np.linalg.lstsq(inputs, logarithms - bias, rcond=1e-3)[0]
    named = dict(weights.named())
    named["head"], named["head_bias"] = head.astype(table.dtype), bias.astype(table.dtype)
    return from_named(named)


def save(path: Path, weights: Weights, config: Config) -> None:
    """Write `weights` (numpy arrays) as an `.npz` file, with the one size that no shape tells."""
    with path.open("wb") as file:
        np.savez(file, heads=np.array(config.heads), **dict(weights.named()))


def load(path: Path) -> tuple[Weights, Config]:
    """Read what `save` wrote. OSError when the file cannot be read, ValueError when it is something else."""
    try:
        with np.load(path) as arrays:
            weights = from_named({name: arrays[name] for name in arrays.files if name != "heads"})
            heads = int(arrays["heads"])
    except (AttributeError, EOFError, KeyError, ValueError, BadZipFile):
        raise ValueError(f"{path} holds no weights that --save wrote") from None
    vocabulary, width = weights.token_table.shape
    context = len(weights.position_table)
    return weights, Config(width, len(weights.layers), heads, context, vocabulary)
