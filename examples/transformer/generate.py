"""Generation: one prefill over a batch of prompts, then one token a step from the KV cache, sampled."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import instrument
from transformer import tokenizer
from transformer.data import Tokens, pad_left
from transformer.model import Cache, Ops, forward
from transformer.weights import Config, Weights


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen: temperature 0 takes the likeliest; top_k 0 considers all."""

    temperature: float = 0.8
    top_k: int = 20
    ignore_end: bool = False


@dataclass(frozen=True, slots=True)
class Generated:
    """What came out of one batch, and how long its two phases took."""

    tokens: list[list[int]]
    prompt_tokens: int
    padded_tokens: int
    decode_steps: int
    prefill_seconds: float
    decode_seconds: float

    @property
    def decoded(self) -> int:
        """Tokens that came out of decode steps: all but the first of each row, which prefill gives."""
        return sum(len(row) - 1 for row in self.tokens)


def _sizes(logits: NDArray[np.generic]) -> dict[str, object]:
    return {"batch": logits.shape[0], "vocabulary": logits.shape[1]}


@instrument.kernel(attrs=_sizes)
def sample(logits: NDArray[np.generic], sampling: Sampling, rng: np.random.Generator) -> Tokens:
    """One token for each row of (batch, vocabulary) logits."""
    if sampling.temperature == 0:
        return np.asarray(logits.argmax(axis=-1), np.int64)
    scaled = logits.astype(np.float64) / sampling.temperature
    if 0 < sampling.top_k < scaled.shape[1]:
        smallest = np.partition(scaled, -sampling.top_k, axis=-1)[:, -sampling.top_k, None]
        scaled = np.where(scaled < smallest, -np.inf, scaled)
    weights = np.exp(scaled - scaled.max(axis=-1, keepdims=True)).cumsum(axis=-1)
    drawn = rng.random((len(scaled), 1)) * weights[:, -1:]
    return np.asarray((weights <= drawn).sum(axis=-1), np.int64)


def generate(
    ops: Ops,
    config: Config,
    weights: Weights,
    prompts: Sequence[Sequence[int]],
    *,
    new_tokens: int,
    sampling: Sampling,
    rng: np.random.Generator,
) -> Generated:
    """Up to `new_tokens` for each prompt; a row ends early at END. ValueError when the context has no room.

    Sampling happens in numpy for every backend, so one seed gives one text whatever computed the logits.
    """
    tokens, pads = pad_left(prompts)
    batch, width = tokens.shape
    if width + new_tokens > config.context:
        raise ValueError(
            f"{width} prompt tokens and {new_tokens} new ones exceed a context of {config.context}"
        )
    real = int((width - pads).sum())
    cache = Cache(ops, config, weights, batch=batch, room=width + new_tokens)
    rows: list[list[int]] = [[] for _ in prompts]
    ended = np.zeros(batch, bool)

    def take(chosen: Tokens) -> None:
        for row in np.flatnonzero(~ended):
            rows[row].append(int(chosen[row]))
            if chosen[row] == tokenizer.END and not sampling.ignore_end:
                ended[row] = True
                instrument.mark("sequence_end", row=int(row), tokens=len(rows[row]))

    with ops.no_gradients():
        with instrument.region("prefill", batch=batch, tokens=width, padding=batch * width - real) as prefill:
            logits = forward(ops, config, weights, tokens, pads=pads, cache=cache, last_only=True)
            chosen = sample(ops.to_numpy(logits)[:, -1], sampling, rng)
        take(chosen)
        instrument.mark("first_token")
        instrument.count("tokens", real, phase="prefill")
        steps = 0
        with instrument.region("decode", batch=batch) as decode:
            while steps + 1 < new_tokens and not ended.all():
                with instrument.step(steps) as step:
                    logits = forward(
                        ops, config, weights, chosen[:, None], pads=pads, cache=cache, last_only=True
                    )
                    chosen = sample(ops.to_numpy(logits)[:, -1], sampling, rng)
                    instrument.annotate(running=int((~ended).sum()))
                instrument.count("tokens", int((~ended).sum()), phase="decode")
                instrument.observe("step_seconds", step.seconds)
                take(chosen)
                steps += 1
    return Generated(rows, real, batch * width, steps, prefill.seconds, decode.seconds)
