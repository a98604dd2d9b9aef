"""The forward pass, the same for every backend: it only knows operators by name."""

from contextlib import AbstractContextManager
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

import instrument
from transformer import costs
from transformer.weights import Array, Config, Layer, Weights

FORBIDDEN = -1e9
"""Added to a score that must not count. Finite, so that a row of pads gives numbers and not NaN."""


class Ops(Protocol):
    """What a backend's module has to offer; see `numpy_ops` for shapes and meanings."""

    NAME: str

    def embed(self, tokens: Array, positions: Array, token_table: Array, position_table: Array) -> Array: ...
    def add(self, x: Array, y: Array) -> Array: ...
    def layer_norm(self, x: Array, gain: Array, bias: Array) -> Array: ...
    def linear(self, x: Array, weight: Array, bias: Array) -> Array: ...
    def scores(self, q: Array, k: Array) -> Array: ...
    def softmax(self, x: Array, mask: Array) -> Array: ...
    def mix(self, p: Array, v: Array) -> Array: ...
    def gelu(self, x: Array) -> Array: ...
    def split_heads(self, x: Array, heads: int) -> tuple[Array, Array, Array]: ...
    def merge_heads(self, x: Array) -> Array: ...
    def empty(self, shape: tuple[int, ...], like: Array) -> Array: ...
    def from_numpy(self, array: NDArray[np.generic]) -> Array: ...
    def to_numpy(self, array: Array) -> NDArray[np.generic]: ...
    def no_gradients(self) -> AbstractContextManager[object]: ...


class Cache:
    """Keys and values of every token so far, reserved once for all that will come."""

    def __init__(self, ops: Ops, config: Config, weights: Weights, *, batch: int, room: int) -> None:
        shape = (batch, config.heads, room, config.width // config.heads)
        self.keys = [ops.empty(shape, weights.token_table) for _ in range(config.layers)]
        self.values = [ops.empty(shape, weights.token_table) for _ in range(config.layers)]
        self.length = 0

    @instrument.kernel(bytes=costs.append_bytes)
    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        """Put new keys and values behind the old ones; the answer is all of them."""
        end = self.length + k.shape[2]
        self.keys[layer][:, :, self.length : end] = k
        self.values[layer][:, :, self.length : end] = v
        return self.keys[layer][:, :, :end], self.values[layer][:, :, :end]


def causal_mask(pads: NDArray[np.int64], *, start: int, queries: int, dtype: str) -> NDArray[np.floating]:
    """(batch, 1, queries, start + queries): no query sees a later token, nor the pads on its row's left."""
    keys = np.arange(start + queries)
    later = keys[None, :] > np.arange(start, start + queries)[:, None]
    padding = keys[None, :] < pads[:, None]
    hidden = later[None, None] | padding[:, None, None]
    return FORBIDDEN * hidden.astype(dtype)


def attention(
    ops: Ops, config: Config, layer: Layer, x: Array, mask: Array, cache: Cache | None, index: int
) -> Array:
    """Normalise, project to queries, keys and values, attend, project back."""
    with instrument.region("attention"):
        normed = ops.layer_norm(x, layer.norm1_gain, layer.norm1_bias)
        q, k, v = ops.split_heads(ops.linear(normed, layer.qkv, layer.qkv_bias), config.heads)
        if cache is not None:
            k, v = cache.append(index, k, v)
        probabilities = ops.softmax(ops.scores(q, k), mask)
        mixed = ops.merge_heads(ops.mix(probabilities, v))
        return ops.linear(mixed, layer.out, layer.out_bias)


def mlp(ops: Ops, layer: Layer, x: Array) -> Array:
    """Normalise, widen, GELU, narrow."""
    with instrument.region("mlp"):
        normed = ops.layer_norm(x, layer.norm2_gain, layer.norm2_bias)
        return ops.linear(ops.gelu(ops.linear(normed, layer.up, layer.up_bias)), layer.down, layer.down_bias)


def forward(
    ops: Ops,
    config: Config,
    weights: Weights,
    tokens: NDArray[np.int64],
    *,
    pads: NDArray[np.int64] | None = None,
    cache: Cache | None = None,
    last_only: bool = False,
) -> Array:
    """Logits of the tokens that follow each of `tokens` (batch, time), or only of those that follow the last.

    `pads` says how many tokens on the left of each row are padding. With a `cache`, `tokens` come after those
    that it holds, and are added to it.
    """
    batch, time = tokens.shape
    start = cache.length if cache is not None else 0
    pads = np.zeros(batch, np.int64) if pads is None else pads
    with instrument.region("forward", batch=batch, tokens=time, context=start + time):
        positions = np.maximum(np.arange(start, start + time) - pads[:, None], 0)
        dtype = f"f{weights.token_table.itemsize}"
        mask = ops.from_numpy(causal_mask(pads, start=start, queries=time, dtype=dtype))
        x = ops.embed(
            ops.from_numpy(tokens), ops.from_numpy(positions), weights.token_table, weights.position_table
        )
        for index, layer in enumerate(weights.layers):
            with instrument.region("layer", index=index):
                x = ops.add(x, attention(ops, config, layer, x, mask, cache, index))
                x = ops.add(x, mlp(ops, layer, x))
        if cache is not None:
            cache.length += time
        with instrument.region("logits"):
            last = x[:, -1:] if last_only else x
            return ops.linear(
                ops.layer_norm(last, weights.norm_gain, weights.norm_bias), weights.head, weights.head_bias
            )
