"""How often each operator must run and what it must cost, from the architecture alone.

The annotations count from the arrays that they see; this counts from the sizes of the model and the number of
tokens, and shares no code with them. If the two agree, both are right, or wrong in the same way.
"""

from collections import Counter
from dataclasses import dataclass, field

from transformer.weights import Config


@dataclass(slots=True)
class Expected:
    """Calls and floating-point operations by operator name."""

    calls: Counter[str] = field(default_factory=Counter)
    flops: Counter[str] = field(default_factory=Counter)

    def __add__(self, other: "Expected") -> "Expected":
        return Expected(self.calls + other.calls, self.flops + other.flops)

    def expect(self, operator: str, calls: int, flops: int = 0) -> None:
        """`calls` more of `operator`, which together cost `flops`."""
        self.calls[operator] += calls
        self.flops[operator] += flops


def forward(
    config: Config, *, batch: int, queries: int, context: int, logits: int | None = None, cached: bool
) -> Expected:
    """One forward pass: `queries` new tokens a row, attending to `context` of them; logits for the last
    `logits` positions of a row (all of them by default)."""
    new, pairs = batch * queries, batch * queries * context
    d, layers, vocabulary = config.width, config.layers, config.vocabulary
    out = batch * (queries if logits is None else logits)
    expected = Expected()
    expected.expect("embed", 1, new * d)
    expected.expect("add", 2 * layers, 2 * layers * new * d)
    expected.expect("layer_norm", 2 * layers + 1, (2 * layers * new + out) * (7 * d + 2))
    # Weights: 3 d^2 for queries, keys and values, 1 back, 4 and 4 in the MLP; a bias for each output.
    weights, biases = 12 * d * d, 3 * d + d + 4 * d + d
    expected.expect(
        "linear",
        4 * layers + 1,
        layers * new * (2 * weights + biases) + out * (2 * d * vocabulary + vocabulary),
    )
    # Heads share the width: all of them together cost d multiply-adds for a pair of tokens.
    expected.expect("scores", layers, layers * pairs * (2 * d + config.heads))
    expected.expect("softmax", layers, layers * pairs * config.heads * 6)
    expected.expect("mix", layers, layers * pairs * 2 * d)
    expected.expect("gelu", layers, layers * new * 4 * d * 9)
    if cached:
        expected.expect("Cache.append", layers)
    return expected


def generation(config: Config, *, batch: int, width: int, steps: int) -> Expected:
    """Prefill of (batch, width) tokens, pads included, and `steps` decode steps of one token a row."""
    expected = forward(config, batch=batch, queries=width, context=width, logits=1, cached=True)
    for step in range(steps):
        expected += forward(config, batch=batch, queries=1, context=width + step + 1, logits=1, cached=True)
    expected.expect("sample", 1 + steps)
    return expected


def parameters(config: Config) -> tuple[int, int]:
    """How many arrays of weights there are, and how many numbers in all of them."""
    d, vocabulary = config.width, config.vocabulary
    block = 12 * d * d + 13 * d  # matrices; 9 d of their biases, and 4 d of two norms
    tables = (vocabulary + config.context) * d
    return 6 + 12 * config.layers, tables + config.layers * block + 2 * d + (d + 1) * vocabulary


def training(config: Config, *, batch: int, context: int, steps: int) -> Expected:
    """`steps` forward passes, losses and updates; what autograd does in between is not annotated."""
    expected = Expected()
    for _ in range(steps):
        expected += forward(config, batch=batch, queries=context, context=context, cached=False)
    logits = batch * context * config.vocabulary
    expected.expect("cross_entropy", steps, steps * (4 * logits + 3 * batch * context))
    arrays, numbers = parameters(config)
    expected.expect("adam", steps * arrays, steps * 12 * numbers)
    return expected
