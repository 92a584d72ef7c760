"""Decoding against exhaustive and cache-free restatements."""

import itertools
import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model.config import from_depth
from model.generate import choice_log_probabilities, generate, generate_batch, restrict
from model.transformer import Transformer

VOCAB = 7
SMALL = from_depth(2, vocab_size=VOCAB, context=32, width=32, heads=2)


def build(config=SMALL) -> Transformer:
    torch.manual_seed(4)
    network = Transformer(config)
    for parameter in network.parameters():
        if parameter.ndim == 2:
            torch.nn.init.normal_(parameter, std=0.4)
    return network.eval()


NETWORK = build()


@torch.no_grad()
def log_probs(ids: list[int]) -> torch.Tensor:
    """Next-token log-probabilities after `ids`, read afresh."""
    return NETWORK.logits(NETWORK(torch.tensor([ids])))[0, -1].log_softmax(-1)


def score(prompt: list[int], answer: tuple[int, ...]) -> float:
    return sum(float(log_probs([*prompt, *answer[:i]])[token]) for i, token in enumerate(answer))


def test_greedy_takes_the_likeliest_token_at_every_step():
    ids = [1, 5]
    for _ in range(8):
        ids.append(int(log_probs(ids).argmax()))
    assert generate(NETWORK, [1, 5], max_tokens=8) == ids[2:]


def test_generation_ends_before_a_stop_id():
    free = generate(NETWORK, [1, 5], max_tokens=8)
    stop = free[3]
    assert generate(NETWORK, [1, 5], max_tokens=8, stop_ids=[stop]) == free[: free.index(stop)]


@pytest.mark.parametrize("decoding", ["greedy", "sample"])
@pytest.mark.parametrize(
    "config", [SMALL, replace(SMALL, positions="learned"), replace(SMALL, window=3)]
)
def test_a_row_does_not_depend_on_its_company(decoding, config):
    network = build(config)
    prompts = [[1, 2, 3, 4, 5, 6, 0], [3], [2, 2, 6]]
    together = generate_batch(
        network, prompts, max_tokens=9, decoding=decoding, stop_ids=[6], seeds=[7, 8, 9]
    )
    alone = [
        generate(network, prompt, max_tokens=9, decoding=decoding, stop_ids=[6], seed=seed)
        for prompt, seed in zip(prompts, [7, 8, 9], strict=True)
    ]
    assert together == alone


def test_sampling_repeats_with_its_seed_and_changes_with_another():
    a, b, c = (generate(NETWORK, [1], max_tokens=20, decoding="sample", seed=s) for s in (1, 1, 2))
    assert a == b != c


def test_sampling_follows_the_probabilities():
    draws = generate_batch(NETWORK, [[1, 5]] * 2000, max_tokens=1, decoding="sample")
    counts = torch.bincount(torch.tensor(draws)[:, 0], minlength=VOCAB) / 2000
    assert torch.allclose(counts, log_probs([1, 5]).exp(), atol=0.04)


def test_beam_search_as_wide_as_the_tree_finds_the_likeliest_sequence():
    best = max(itertools.product(range(VOCAB), repeat=3), key=lambda answer: score([2], answer))
    assert generate(NETWORK, [2], max_tokens=3, decoding="beam", num_beams=VOCAB**2) == list(best)


def test_one_beam_is_greedy():
    beam = generate(NETWORK, [2, 4], max_tokens=6, decoding="beam", num_beams=1)
    assert beam == generate(NETWORK, [2, 4], max_tokens=6)


def test_beam_search_weighs_ended_against_running_hypotheses():
    stop, length = 3, 3
    answers = [
        (*body, stop)
        for n in range(length)
        for body in itertools.product([t for t in range(VOCAB) if t != stop], repeat=n)
    ] + list(itertools.product([t for t in range(VOCAB) if t != stop], repeat=length))
    best = max(answers, key=lambda answer: score([0], answer))
    found = generate(
        NETWORK, [0], max_tokens=length, decoding="beam", num_beams=49, stop_ids=[stop]
    )
    assert found == [token for token in best if token != stop]


def test_choices_have_the_probabilities_of_their_tokens():
    choices = [[1], [2, 3], [2, 3, 6, 0], [5, 5]]
    found = choice_log_probabilities(NETWORK, [4, 1, 0], choices)
    assert found == pytest.approx([score([4, 1, 0], tuple(c)) for c in choices], abs=1e-4)


def test_single_token_choices_over_the_vocabulary_sum_to_one():
    found = choice_log_probabilities(NETWORK, [4], [[token] for token in range(VOCAB)])
    assert sum(map(math.exp, found)) == pytest.approx(1, abs=1e-5)


def kept(probs: list[float], **limits: float) -> list[int]:
    logits = torch.tensor([probs]).log()
    return restrict(logits, **limits)[0].isfinite().nonzero()[:, 0].tolist()


def test_top_p_keeps_the_smallest_set_whose_mass_reaches_p():
    probs = [0.1, 0.5, 0.15, 0.25]
    assert kept(probs, top_p=0.4) == [1]
    assert kept(probs, top_p=0.6) == [1, 3]
    assert kept(probs, top_p=0.85) == [1, 2, 3]
    assert kept(probs, top_p=1.0) == [0, 1, 2, 3]


def test_top_k_keeps_k_and_comes_before_top_p():
    probs = [0.1, 0.5, 0.15, 0.25]
    assert kept(probs, top_k=2) == [1, 3]
    assert kept(probs, top_k=99) == [0, 1, 2, 3]
    assert kept(probs, top_k=2, top_p=0.6) == [1]
    assert kept([0.25] * 4, top_k=2) != [0, 1, 2, 3]


def test_temperature_divides_the_logits():
    logits = torch.tensor([[0.0, 1.0, 3.0]])
    assert torch.allclose(restrict(logits, temperature=2.0), (logits / 2).log_softmax(-1))


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=20), st.integers(1, 25), st.floats(0.01, 1))
@settings(deadline=None)
def test_what_is_kept_is_a_distribution_over_the_likeliest(values, top_k, top_p):
    logits = torch.tensor([values])
    probs = restrict(logits, 1.0, top_k, top_p).exp()[0]
    assert float(probs.sum()) == pytest.approx(1, abs=1e-4)
    assert 1 <= int((probs > 0).sum()) <= top_k
    assert logits[0][probs > 0].max() == logits.max()
    assert logits[0][probs > 0].min() >= logits[0][probs == 0].max() if (probs == 0).any() else True


def test_a_long_prompt_keeps_its_end_and_says_so(caplog):
    prompt = [token % VOCAB for token in range(50)]
    found = generate(NETWORK, prompt, max_tokens=4)
    assert found == generate(NETWORK, prompt[-28:], max_tokens=4)
    assert "prompt cut from 50 to its last 28 tokens" in caplog.text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_tokens": 32}, r"max_tokens is 32; it must be 1 to 31 \(the context is 32\)"),
        ({"temperature": 0.0}, "temperature is 0.0; it must be above 0; decoding=greedy"),
        ({"top_p": 1.5}, "top_p is 1.5; it must be above 0, at most 1"),
        ({"top_k": 0}, "top_k is 0; it must be at least 1"),
        ({"num_beams": 0, "decoding": "beam"}, "num_beams is 0; it must be at least 1"),
        ({"decoding": "mbr"}, "decoding is 'mbr'; it must be greedy"),
        ({"prompt_ids": []}, "the prompt's length is 0; it must be at least 1"),
    ],
)
def test_settings_out_of_range_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        generate(NETWORK, **{"prompt_ids": [1], "max_tokens": 4, **change})
