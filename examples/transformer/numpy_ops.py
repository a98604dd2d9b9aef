"""The operators over numpy."""

from contextlib import AbstractContextManager, nullcontext

import numpy as np
from numpy.typing import NDArray

import instrument
from transformer import costs
from transformer.weights import Array

NAME = "numpy"
EPSILON = 1e-5


@instrument.kernel(flops=costs.embed_flops, bytes=costs.embed_bytes)
def embed(tokens: Array, positions: Array, token_table: Array, position_table: Array) -> Array:
    """(batch, time) tokens and their positions -> (batch, time, width)."""
    return token_table[tokens] + position_table[positions]


@instrument.kernel(flops=costs.add_flops, bytes=costs.add_bytes)
def add(x: Array, y: Array) -> Array:
    """The residual connection: x + y, of one shape."""
    return x + y


@instrument.kernel(flops=costs.layer_norm_flops, bytes=costs.layer_norm_bytes)
def layer_norm(x: Array, gain: Array, bias: Array) -> Array:
    """Normalise the last axis to mean 0 and variance 1, then scale and shift it."""
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = np.square(centred).mean(axis=-1, keepdims=True)
    return centred / np.sqrt(variance + EPSILON) * gain + bias


@instrument.kernel(flops=costs.linear_flops, bytes=costs.linear_bytes, attrs=costs.linear_attrs)
def linear(x: Array, weight: Array, bias: Array) -> Array:
    """(..., in) @ (in, out) + (out,)."""
    flat = x.reshape(-1, weight.shape[0]) @ weight
    flat += bias
    return flat.reshape(*x.shape[:-1], weight.shape[1])


@instrument.kernel(flops=costs.scores_flops, bytes=costs.scores_bytes, attrs=costs.scores_attrs)
def scores(q: Array, k: Array) -> Array:
    """QK^T / sqrt(head width): (batch, heads, queries, head), (..., keys, head) -> (..., queries, keys)."""
    products = q @ k.transpose(0, 1, 3, 2)
    products *= q.shape[3] ** -0.5
    return products


@instrument.kernel(flops=costs.softmax_flops, bytes=costs.softmax_bytes)
def softmax(x: Array, mask: Array) -> Array:
    """Probabilities over the last axis of x + mask; mask is (batch, 1, queries, keys), 0 or very low."""
    masked = x + mask
    masked -= masked.max(axis=-1, keepdims=True)
    np.exp(masked, out=masked)
    masked /= masked.sum(axis=-1, keepdims=True)
    return masked


@instrument.kernel(flops=costs.mix_flops, bytes=costs.mix_bytes)
def mix(p: Array, v: Array) -> Array:
    """AV: (batch, heads, queries, keys) weights, (..., keys, head) values -> (..., queries, head)."""
    return p @ v


@instrument.kernel(flops=costs.gelu_flops, bytes=costs.gelu_bytes)
def gelu(x: Array) -> Array:
    """x * P(normal < x), by the usual tanh formula."""
    inner = x * x
    inner *= x
    inner *= 0.044715
    inner += x
    inner *= (2 / np.pi) ** 0.5
    np.tanh(inner, out=inner)
    inner += 1
    inner *= x
    inner *= 0.5
    return inner


def split_heads(x: Array, heads: int) -> tuple[Array, Array, Array]:
    """(batch, time, 3 * width) -> three views of (batch, heads, time, head)."""
    batch, time, width = x.shape
    q, k, v = x.reshape(batch, time, 3, heads, width // 3 // heads).transpose(2, 0, 3, 1, 4)
    return q, k, v


def merge_heads(x: Array) -> Array:
    """(batch, heads, time, head) -> (batch, time, width)."""
    batch, heads, time, head = x.shape
    return x.transpose(0, 2, 1, 3).reshape(batch, time, heads * head)


def empty(shape: tuple[int, ...], like: Array) -> Array:
    """Unset memory of the kind of `like`: what the KV cache reserves."""
    return np.empty(shape, like.dtype)


def from_numpy(array: NDArray[np.generic]) -> Array:
    """`array` itself: this backend's arrays are numpy's."""
    return array


def to_numpy(array: Array) -> NDArray[np.generic]:
    """This backend's array as numpy's."""
    return np.asarray(array)


def no_gradients() -> AbstractContextManager[object]:
    """Nothing to switch off here."""
    return nullcontext()
