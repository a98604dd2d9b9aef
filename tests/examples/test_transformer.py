"""The example computes what a transformer computes: over both backends, with and without its cache."""

import importlib.util
from types import ModuleType

import numpy as np
import pytest
from transformer import data, flops, numpy_ops, tokenizer, weights
from transformer.generate import Sampling, generate, sample
from transformer.model import Cache, forward
from transformer.weights import Config, Weights

TINY = Config(width=24, layers=3, heads=4, context=40)
HAS_TORCH = importlib.util.find_spec("torch") is not None
needs_torch = pytest.mark.skipif(
    not HAS_TORCH, reason="TORCH IS NOT INSTALLED: its backend is not tested here"
)


@pytest.fixture(params=["numpy", pytest.param("torch", marks=needs_torch)])
def ops(request: pytest.FixtureRequest) -> ModuleType:
    return numpy_ops if request.param == "numpy" else torch_ops()


def torch_ops() -> ModuleType:
    import torch
    from transformer import torch_ops

    torch.set_num_threads(1)  # as the example does; two of them wait for each other on a busy machine

    return torch_ops


@pytest.fixture(scope="module")
def model() -> Weights:
    """Weights of double precision, biases and gains included, so that no operator can hide behind a zero."""
    rng = np.random.default_rng(7)
    return weights.initial(TINY, seed=3, dtype=np.float64).map(
        lambda array: array + 0.1 * rng.standard_normal(array.shape)
    )


def some_tokens(batch: int, time: int, seed: int = 1) -> data.Tokens:
    return np.random.default_rng(seed).integers(0, tokenizer.VOCABULARY, (batch, time))


def logits_of(ops: ModuleType, model: Weights, tokens: data.Tokens, **options: object) -> np.ndarray:
    return ops.to_numpy(forward(ops, TINY, model.map(ops.from_numpy), tokens, **options))


# ------------------------------------------------------------------ text


def test_every_byte_survives_the_tokenizer() -> None:
    every = list(range(256))
    assert tokenizer.encode(tokenizer.decode(every)) == every
    backwards = every[::-1]
    assert tokenizer.encode(tokenizer.decode(backwards)) == backwards


@pytest.mark.parametrize("text", ["", "plain", "naïve 日本語 👩‍🔬🏳️‍🌈", "tab\tline\nnull\0"])
def test_text_survives_the_tokenizer(text: str) -> None:
    tokens = tokenizer.encode(text, begin=True, end=True)
    assert tokens[0] == tokenizer.BEGIN
    assert tokens[-1] == tokenizer.END
    assert bytes(tokens[1:-1]) == text.encode()
    assert tokenizer.decode(tokens) == text


def test_a_broken_character_can_be_shown() -> None:
    text = tokenizer.decode([*tokenizer.encode("👍")[:2], 10])
    assert tokenizer.show(text).encode() == "�⏎".encode()


def test_the_corpus_has_at_least_the_page_that_the_example_brings() -> None:
    tokens = data.load(data.documents())
    assert tokens[0] == tokenizer.BEGIN
    assert tokens[-1] == tokenizer.END
    assert tokenizer.decode(tokens[:22]) == "On measuring programs"
    assert len(tokens) > 4000


def test_a_target_is_the_token_after_its_input() -> None:
    corpus = np.arange(100, dtype=np.int64)
    batches = data.training_batches(corpus, batch=5, context=9, rng=np.random.default_rng(0))
    inputs, targets = next(batches)
    assert inputs.shape == (5, 9)
    np.testing.assert_array_equal(targets, inputs + 1)
    assert not np.array_equal(inputs, next(batches)[0])


def test_a_corpus_shorter_than_the_context_is_refused() -> None:
    batches = data.training_batches(
        np.arange(10, dtype=np.int64), batch=1, context=9, rng=np.random.default_rng(0)
    )
    with pytest.raises(ValueError, match="10 tokens"):
        next(batches)


def test_prompts_are_padded_on_the_left() -> None:
    tokens, pads = data.pad_left([[1, 2, 3], [4]])
    assert tokens.tolist() == [[1, 2, 3], [tokenizer.PAD, tokenizer.PAD, 4]]
    assert pads.tolist() == [0, 2]


# ------------------------------------------------------------------ numerics


@needs_torch
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-12), (np.float32, 2e-5)])
def test_both_backends_agree_on_logits(model: Weights, dtype: type, tolerance: float) -> None:
    model = model.map(lambda array: array.astype(dtype))
    tokens, pads = some_tokens(3, 17), np.array([0, 4, 1])
    ours = logits_of(numpy_ops, model, tokens, pads=pads)
    theirs = logits_of(torch_ops(), model, tokens, pads=pads)
    assert ours.dtype == theirs.dtype == dtype
    np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)


def test_decoding_from_the_cache_equals_computing_everything_again(ops: ModuleType, model: Weights) -> None:
    tokens, pads = some_tokens(3, 14), np.array([0, 5, 2])
    full = logits_of(ops, model, tokens, pads=pads)
    own = model.map(ops.from_numpy)
    cache = Cache(ops, TINY, own, batch=3, room=14)
    pieces = [ops.to_numpy(forward(ops, TINY, own, tokens[:, :9], pads=pads, cache=cache))]
    for at in range(9, 14):
        pieces.append(ops.to_numpy(forward(ops, TINY, own, tokens[:, at : at + 1], pads=pads, cache=cache)))
    assert cache.length == 14
    cached = np.concatenate(pieces, axis=1)
    for row, pad in enumerate(pads):
        np.testing.assert_allclose(cached[row, pad:], full[row, pad:], rtol=1e-11, atol=1e-11)


def test_a_padded_row_computes_what_it_computes_alone(ops: ModuleType, model: Weights) -> None:
    prompts = [some_tokens(1, n, seed=n)[0].tolist() for n in (11, 6, 1)]
    tokens, pads = data.pad_left(prompts)
    together = logits_of(ops, model, tokens, pads=pads, last_only=True)
    for row, prompt in enumerate(prompts):
        alone = logits_of(ops, model, np.array([prompt]))
        np.testing.assert_allclose(together[row, -1], alone[0, -1], rtol=1e-11, atol=1e-11)


def test_a_later_token_changes_nothing_before_it(ops: ModuleType, model: Weights) -> None:
    tokens = some_tokens(1, 10)
    changed = tokens.copy()
    changed[0, 6] += 1
    before, after = logits_of(ops, model, tokens), logits_of(ops, model, changed)
    np.testing.assert_array_equal(before[:, :6], after[:, :6])
    assert np.abs(before[:, 6:] - after[:, 6:]).min(axis=-1).max() > 0


@needs_torch
def test_autograd_through_the_operators_equals_finite_differences(model: Weights) -> None:
    import torch

    inputs, targets = some_tokens(2, 7, seed=5), some_tokens(2, 7, seed=6)
    ops = torch_ops()
    own = model.map(ops.from_numpy)
    named = dict(own.named())
    for tensor in named.values():
        tensor.requires_grad_()
    loss = ops.cross_entropy(forward(ops, TINY, own, inputs), torch.tensor(targets))
    gradients = dict(zip(named, torch.autograd.grad(loss, list(named.values())), strict=True))

    def numpy_loss(changed: Weights) -> float:
        logits = logits_of(numpy_ops, changed, inputs)
        rows = logits.reshape(-1, logits.shape[-1])
        return float(np.mean(np.log(np.exp(rows).sum(-1)) - rows[np.arange(len(rows)), targets.ravel()]))

    rng, step = np.random.default_rng(2), 1e-5
    assert loss.item() == pytest.approx(numpy_loss(model), rel=1e-12)
    for name, array in model.named():
        direction = rng.standard_normal(array.shape)
        direction /= np.linalg.norm(direction)
        plus, minus = (
            numpy_loss(weights.from_named({**dict(model.named()), name: array + sign * step * direction}))
            for sign in (1, -1)
        )
        expected = float((gradients[name].numpy() * direction).sum())
        assert (plus - minus) / (2 * step) == pytest.approx(expected, rel=1e-5, abs=1e-8), name


@needs_torch
def test_training_lowers_the_loss() -> None:
    from transformer.train import train

    ops = torch_ops()
    config = Config(width=32, layers=2, heads=4, context=32)
    model = weights.initial(config, seed=0).map(ops.from_numpy)
    corpus = data.load([data.HERE / "corpus.txt"])
    batches = data.training_batches(corpus, batch=4, context=32, rng=np.random.default_rng(0))
    losses = train(ops, config, model, batches, steps=25, rate=5e-3)
    assert losses[0] == pytest.approx(np.log(tokenizer.VOCABULARY), abs=0.1)
    assert np.mean(losses[-5:]) < losses[0] - 1.5


def test_the_fitted_head_predicts_the_corpus_better_than_chance() -> None:
    config = Config(width=128, layers=1, heads=2, context=40)
    corpus = data.load([data.HERE / "corpus.txt"])
    model = weights.with_bigram_head(weights.initial(config, seed=0), corpus)
    windows = np.stack([corpus[at : at + 33] for at in range(0, 3200, 400)])
    logits = forward(numpy_ops, config, model, windows[:, :-1])
    chosen = np.take_along_axis(logits, windows[:, 1:, None], axis=-1)[..., 0]
    loss = float((np.log(np.exp(logits).sum(-1)) - chosen).mean())
    assert loss < 3 < np.log(tokenizer.VOCABULARY)


# ------------------------------------------------------------------ generation


def test_sampling_takes_the_likeliest_at_temperature_zero_and_with_one_candidate() -> None:
    logits = np.random.default_rng(0).standard_normal((6, 50))
    rng = np.random.default_rng(1)
    likeliest = logits.argmax(axis=-1)
    np.testing.assert_array_equal(sample(logits, Sampling(temperature=0), rng), likeliest)
    np.testing.assert_array_equal(sample(logits, Sampling(temperature=2.0, top_k=1), rng), likeliest)


def test_sampling_draws_the_top_tokens_as_often_as_their_probabilities_say() -> None:
    logits = np.log(np.array([[0.1, 0.4, 0.05, 0.3, 0.15]]))
    rng = np.random.default_rng(1)
    drawn = sample(np.repeat(logits, 20_000, axis=0), Sampling(temperature=1.0, top_k=3), rng)
    shares = np.bincount(drawn, minlength=5) / 20_000
    np.testing.assert_allclose(shares, [0, 0.4 / 0.85, 0, 0.3 / 0.85, 0.15 / 0.85], atol=0.02)


@needs_torch
def test_one_seed_gives_one_text_over_both_backends(model: Weights) -> None:
    prompts = [tokenizer.encode("To look is"), tokenizer.encode("A zero", begin=True)]
    first, second = (
        generate(
            ops,
            TINY,
            model.map(ops.from_numpy),
            prompts,
            new_tokens=20,
            sampling=Sampling(ignore_end=True),
            rng=np.random.default_rng(4),
        )
        for ops in (numpy_ops, torch_ops())
    )
    assert first.tokens == second.tokens
    assert [len(row) for row in first.tokens] == [20, 20]


def test_a_row_ends_at_its_end_token_and_the_others_go_on(model: Weights) -> None:
    prompts = [some_tokens(1, 5, seed=seed)[0].tolist() for seed in range(6)]
    sampling = Sampling(temperature=3.0, top_k=0)

    def run(sampling: Sampling, head_bias: float) -> list[list[int]]:
        biased = weights.from_named(
            {name: array.copy() for name, array in model.named()} | {"head_bias": bias(head_bias)}
        )
        rng = np.random.default_rng(0)
        result = generate(numpy_ops, TINY, biased, prompts, new_tokens=30, sampling=sampling, rng=rng)
        assert result.decoded == sum(map(len, result.tokens)) - len(prompts)
        assert result.decode_steps == max(map(len, result.tokens)) - 1
        return result.tokens

    def bias(of_end: float) -> np.ndarray:
        changed = dict(model.named())["head_bias"].copy()
        changed[tokenizer.END] += of_end
        return changed

    rows = run(sampling, 9.0)
    assert len({len(row) for row in rows}) > 1
    for row in rows:
        assert tokenizer.END not in row[:-1]
        assert row[-1] == tokenizer.END or len(row) == 30
    on = run(Sampling(3.0, 0, ignore_end=True), 9.0)
    assert [len(row) for row in on] == [30] * 6


def test_a_prompt_without_room_is_refused(model: Weights) -> None:
    with pytest.raises(ValueError, match="30 prompt tokens and 11 new ones exceed a context of 40"):
        generate(
            numpy_ops,
            TINY,
            model,
            [[1] * 30],
            new_tokens=11,
            sampling=Sampling(),
            rng=np.random.default_rng(0),
        )


def test_saved_weights_come_back(tmp_path, model: Weights) -> None:
    weights.save(tmp_path / "w.npz", model, TINY)
    loaded, config = weights.load(tmp_path / "w.npz")
    assert config == TINY
    for (name, before), (same, after) in zip(model.named(), loaded.named(), strict=True):
        assert name == same
        np.testing.assert_array_equal(before, after)


# ------------------------------------------------------------------ the independent count


def test_the_formula_gives_what_a_pencil_gives() -> None:
    """Width 2, one head, one layer, vocabulary 3, two rows of one token that look at five."""
    config = Config(width=2, layers=1, heads=1, context=8, vocabulary=3)
    expected = flops.forward(config, batch=2, queries=1, context=5, cached=True)
    assert dict(expected.calls) == {
        "embed": 1, "add": 2, "layer_norm": 3, "linear": 5, "scores": 1, "softmax": 1, "mix": 1, "gelu": 1,
        "Cache.append": 1,
    }  # fmt: skip
    # Two tokens through 2x6, 2x2, 2x8, 8x2 and 2x3: 12 + 4 + 16 + 16 + 6 = 54 products and sums, 21 biases.
    assert expected.flops["linear"] == 2 * (2 * 54 + 6 + 2 + 8 + 2 + 3)
    assert expected.flops["scores"] == 2 * 5 * (2 * 2 + 1)
    assert expected.flops["mix"] == 2 * 5 * 2 * 2
    assert expected.flops["softmax"] == 2 * 5 * 6
    assert expected.flops["gelu"] == 2 * 8 * 9
    assert expected.flops["add"] == 2 * 2 * 2
    assert expected.flops["embed"] == 2 * 2
    assert expected.flops["layer_norm"] == 3 * 2 * (7 * 2 + 2)


def test_the_formula_knows_how_many_parameters_there_are(model: Weights) -> None:
    assert flops.parameters(TINY) == (len(list(model.named())), model.parameters)
