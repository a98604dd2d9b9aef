"""Training, over torch: its autograd goes through our operators backwards."""

from collections.abc import Iterator

import torch

import instrument
from transformer import torch_ops
from transformer.data import Tokens
from transformer.model import Ops, forward
from transformer.weights import Config, Weights


def train(
    ops: Ops,
    config: Config,
    weights: Weights,
    batches: Iterator[tuple[Tokens, Tokens]],
    *,
    steps: int,
    rate: float = 2e-3,
) -> list[float]:
    """Improve `weights` (torch tensors) in place for `steps` batches; the losses, in nats per token."""
    parameters = [parameter.requires_grad_() for _, parameter in weights.named()]
    means = [torch.zeros_like(parameter) for parameter in parameters]
    squares = [torch.zeros_like(parameter) for parameter in parameters]
    losses = []
    with instrument.region("train", steps=steps, parameters=weights.parameters):
        for number in range(steps):
            with instrument.step(number) as step:
                inputs, targets = next(batches)
                logits = forward(ops, config, weights, inputs)
                loss = torch_ops.cross_entropy(logits, torch_ops.from_numpy(targets))
                with instrument.region("backward"):
                    gradients = torch.autograd.grad(loss, parameters)
                with instrument.region("optimizer"), torch.no_grad():
                    for state in zip(parameters, gradients, means, squares, strict=True):
                        torch_ops.adam(*state, rate, number + 1)
                losses.append(loss.item())
                step.set(loss=losses[-1])
            instrument.gauge("loss", losses[-1])
            instrument.count("tokens", targets.size, phase="train")
    for parameter in parameters:
        parameter.requires_grad_(False)
    return losses
