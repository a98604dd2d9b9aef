"""The operators over torch: the same mathematics, written out again, on any device that torch has."""

from contextlib import AbstractContextManager
from math import pi

import numpy as np
import torch
from numpy.typing import NDArray

import instrument
from transformer import costs
from transformer.weights import Array

NAME = "torch"
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
    centred = x - x.mean(-1, keepdim=True)
    variance = centred.square().mean(-1, keepdim=True)
    return centred * torch.rsqrt(variance + EPSILON) * gain + bias


@instrument.kernel(flops=costs.linear_flops, bytes=costs.linear_bytes, attrs=costs.linear_attrs)
def linear(x: Array, weight: Array, bias: Array) -> Array:
    """(..., in) @ (in, out) + (out,)."""
    flat = torch.addmm(bias, x.reshape(-1, weight.shape[0]), weight)
    return flat.reshape(*x.shape[:-1], weight.shape[1])


@instrument.kernel(flops=costs.scores_flops, bytes=costs.scores_bytes, attrs=costs.scores_attrs)
def scores(q: Array, k: Array) -> Array:
    """QK^T / sqrt(head width): (batch, heads, queries, head), (..., keys, head) -> (..., queries, keys)."""
    return q @ k.transpose(2, 3) * q.shape[3] ** -0.5


@instrument.kernel(flops=costs.softmax_flops, bytes=costs.softmax_bytes)
def softmax(x: Array, mask: Array) -> Array:
    """Probabilities over the last axis of x + mask; mask is (batch, 1, queries, keys), 0 or very low."""
    return torch.softmax(x + mask, dim=-1)


@instrument.kernel(flops=costs.mix_flops, bytes=costs.mix_bytes)
def mix(p: Array, v: Array) -> Array:
    """AV: (batch, heads, queries, keys) weights, (..., keys, head) values -> (..., queries, head)."""
    return p @ v


@instrument.kernel(flops=costs.gelu_flops, bytes=costs.gelu_bytes)
def gelu(x: Array) -> Array:
    """x * P(normal < x), by the usual tanh formula."""
    return 0.5 * x * (1 + torch.tanh((2 / pi) ** 0.5 * (x + 0.044715 * (x * x * x))))


@instrument.kernel(flops=costs.cross_entropy_flops, bytes=costs.cross_entropy_bytes)
def cross_entropy(logits: Array, targets: Array) -> Array:
    """Mean loss in nats of (batch, time, vocabulary) logits against (batch, time) targets."""
    chosen = logits.gather(-1, targets[..., None])[..., 0]
    return (torch.logsumexp(logits, dim=-1) - chosen).mean()


@instrument.kernel(flops=costs.adam_flops, bytes=costs.adam_bytes)
def adam(parameter: Array, gradient: Array, mean: Array, square: Array, rate: float, number: int) -> None:
    """One step of Adam, in place; `number` counts from 1.

    Written out because `torch.optim` imports torch's compiler, which takes longer than our training.
    """
    decay, square_decay = 0.9, 0.99
    mean.lerp_(gradient, 1 - decay)
    square.mul_(square_decay).addcmul_(gradient, gradient, value=1 - square_decay)
    corrected = rate * (1 - square_decay**number) ** 0.5 / (1 - decay**number)
    parameter.addcdiv_(mean, square.sqrt().add_(1e-8), value=-corrected)


def split_heads(x: Array, heads: int) -> tuple[Array, Array, Array]:
    """(batch, time, 3 * width) -> three views of (batch, heads, time, head)."""
    batch, time, width = x.shape
    q, k, v = x.reshape(batch, time, 3, heads, width // 3 // heads).permute(2, 0, 3, 1, 4)
    return q, k, v


def merge_heads(x: Array) -> Array:
    """(batch, heads, time, head) -> (batch, time, width)."""
    batch, heads, time, head = x.shape
    return x.transpose(1, 2).reshape(batch, time, heads * head)


def empty(shape: tuple[int, ...], like: Array) -> Array:
    """Unset memory of the kind of `like`: what the KV cache reserves."""
    return torch.empty(shape, dtype=like.dtype, device=like.device)


def from_numpy(array: NDArray[np.generic]) -> Array:
    """A copy of `array` on torch's default device."""
    return torch.tensor(array)


def to_numpy(array: Array) -> NDArray[np.generic]:
    """A tensor as numpy's; waits for the device it is on."""
    result: NDArray[np.generic] = array.detach().cpu().numpy()
    return result


def no_gradients() -> AbstractContextManager[object]:
    """Generation keeps no graph."""
    return torch.inference_mode()
