"""What each operator costs, in terms of its own arguments: used by the annotations of both backends.

A function here has parameters named like the operator's, so `instrument.kernel` can bind them by name; it may
take fewer. Operations: an addition, multiplication, division, comparison, square root, exponential or
tanh of one element is 1, so a matrix product is 2 per multiply-add. Bytes: every input read once, the output
written once, which is what an operator that reuses nothing between calls must move.
"""

from math import prod
from typing import Protocol


class Array(Protocol):
    """What both numpy's arrays and torch's tensors say of themselves."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def itemsize(self) -> int: ...
    @property
    def nbytes(self) -> int: ...


def embed_flops(tokens: Array, token_table: Array) -> int:
    """One addition an element: a token's row plus a position's row."""
    return prod(tokens.shape) * token_table.shape[1]


def embed_bytes(tokens: Array, token_table: Array) -> int:
    """Two rows read and one written for each token; both indices read."""
    return prod(tokens.shape) * (3 * token_table.shape[1] * token_table.itemsize + 2 * tokens.itemsize)


def add_flops(x: Array) -> int:
    """One addition an element."""
    return prod(x.shape)


def add_bytes(x: Array) -> int:
    """Two inputs and one output."""
    return 3 * x.nbytes


def layer_norm_flops(x: Array) -> int:
    """Per element: mean, centre, square, sum, scale, gain, bias; per row: epsilon and the root."""
    return 7 * prod(x.shape) + 2 * prod(x.shape[:-1])


def layer_norm_bytes(x: Array, gain: Array, bias: Array) -> int:
    """Input, output, and the two vectors."""
    return 2 * x.nbytes + gain.nbytes + bias.nbytes


def linear_flops(x: Array, weight: Array) -> int:
    """2 per multiply-add, 1 per bias added."""
    return prod(x.shape[:-1]) * (2 * weight.shape[0] + 1) * weight.shape[1]


def linear_bytes(x: Array, weight: Array, bias: Array) -> int:
    """The input, the weights, and the output."""
    output = prod(x.shape[:-1]) * weight.shape[1] * x.itemsize
    return x.nbytes + weight.nbytes + bias.nbytes + output


def linear_attrs(x: Array, weight: Array) -> dict[str, object]:
    """The three sizes of the matrix product."""
    return {"rows": prod(x.shape[:-1]), "inner": weight.shape[0], "columns": weight.shape[1]}


def scores_flops(q: Array, k: Array) -> int:
    """A dot product of head width for each query and key, and one scaling."""
    return prod(q.shape[:-1]) * k.shape[2] * (2 * q.shape[3] + 1)


def scores_bytes(q: Array, k: Array) -> int:
    """Queries, keys, and one score for each pair."""
    return q.nbytes + k.nbytes + prod(q.shape[:-1]) * k.shape[2] * q.itemsize


def scores_attrs(q: Array, k: Array) -> dict[str, object]:
    """Batch, heads, and how many queries look at how many keys."""
    return {"batch": q.shape[0], "heads": q.shape[1], "queries": q.shape[2], "keys": k.shape[2]}


def softmax_flops(x: Array) -> int:
    """Per element: mask, maximum, subtract, exponential, sum, divide."""
    return 6 * prod(x.shape)


def softmax_bytes(x: Array, mask: Array) -> int:
    """Input, output, and the mask."""
    return 2 * x.nbytes + mask.nbytes


def mix_flops(p: Array, v: Array) -> int:
    """2 per multiply-add: every query sums all values, weighted."""
    return 2 * prod(p.shape) * v.shape[3]


def mix_bytes(p: Array, v: Array) -> int:
    """Probabilities, values, and one vector for each query."""
    return p.nbytes + v.nbytes + prod(p.shape[:-1]) * v.shape[3] * p.itemsize


def gelu_flops(x: Array) -> int:
    """Cube (2), two scalings, two additions, tanh, and two products."""
    return 9 * prod(x.shape)


def gelu_bytes(x: Array) -> int:
    """Input and output."""
    return 2 * x.nbytes


def append_bytes(k: Array, v: Array) -> int:
    """Both are read, and written into the cache."""
    return 2 * (k.nbytes + v.nbytes)


def cross_entropy_flops(logits: Array) -> int:
    """Per logit: maximum, subtract, exponential, sum; per row: logarithm, difference, and an addition."""
    return 4 * prod(logits.shape) + 3 * prod(logits.shape[:-1])


def cross_entropy_bytes(logits: Array, targets: Array) -> int:
    """Logits and targets; the result is one number."""
    return logits.nbytes + targets.nbytes + logits.itemsize


def adam_flops(parameter: Array) -> int:
    """Per number: 3 for the mean, 4 for the square, 5 for the update."""
    return 12 * prod(parameter.shape)


def adam_bytes(parameter: Array) -> int:
    """Parameter, gradient, mean and square are read; all but the gradient are written."""
    return 7 * parameter.nbytes
