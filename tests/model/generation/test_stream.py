"""Greedy decoding and sampling against a restatement that reads everything afresh."""

import pytest
import torch

from model.generation import Ending, Sampling, generate, stream
from model.generation import score as score_all
from model.shapes import from_depth
from model.transformer import Transformer

DRAWN = Sampling()


def ids(network, prompt, ending, *args, **how) -> list[int]:
    (row,) = generate(network, [prompt], ending, *args, **how)
    return row.ids


def test_greedy_takes_the_likeliest_token_at_every_step(network, log_probs):
    expected = [1, 5]
    for _ in range(8):
        expected.append(int(log_probs(expected).argmax()))
    assert ids(network, [1, 5], Ending(8)) == expected[2:]


def test_generation_ends_before_a_stop_id_and_says_so(network):
    free = ids(network, [1, 5], Ending(8))
    stop = free[3]
    (row,) = generate(network, [[1, 5]], Ending(8, frozenset({stop})))
    assert (row.ids, row.reason) == (free[: free.index(stop)], "stop")
    assert generate(network, [[1, 5]], Ending(8))[0].reason == "length"


def test_generation_ends_after_the_token_with_which_a_condition_holds(network):
    free = ids(network, [1, 5], Ending(8))
    (row,) = generate(network, [[1, 5]], Ending(8, stopped=lambda tokens: len(tokens) == 3))
    assert (row.ids, row.reason) == (free[:3], "stop")


def test_a_row_does_not_depend_on_its_company_or_on_rows_that_end_early(network):
    prompts, ending = [[1, 2, 3, 4, 5, 6, 0], [3], [2, 2, 6], [4, 4]], Ending(9, frozenset({6}))
    for sampling in (Sampling(temperature=0), DRAWN):
        together = generate(network, prompts, ending, sampling, seeds=[7, 8, 9, 10])
        alone = [
            generate(network, [prompt], ending, sampling, seeds=[seed])[0]
            for prompt, seed in zip(prompts, [7, 8, 9, 10], strict=True)
        ]
        assert [row.ids for row in together] == [row.ids for row in alone]
        assert [row.reason for row in together] == [row.reason for row in alone]
    assert {len(row.ids) for row in together} > {9}, "some rows end early, some do not"


def test_samples_of_a_prompt_are_those_of_the_prompt_repeated(network):
    repeated = generate(network, [[1], [1], [2, 3], [2, 3]], Ending(6), DRAWN, seeds=[1, 2, 3, 4])
    sampled = generate(network, [[1], [2, 3]], Ending(6), DRAWN, samples=2, seeds=[1, 2, 3, 4])
    assert [row.ids for row in sampled] == [row.ids for row in repeated]


def test_sampling_repeats_with_its_seed_and_changes_with_another(network):
    a, b, c = (ids(network, [1], Ending(20), DRAWN, seeds=[seed]) for seed in (1, 1, 2))
    assert a == b != c


def test_sampling_follows_the_probabilities(network, log_probs):
    rows = generate(network, [[1, 5]], Ending(1), DRAWN, samples=2000)
    counts = torch.bincount(torch.tensor([row.ids[0] for row in rows]), minlength=7) / 2000
    assert torch.allclose(counts, log_probs([1, 5]).exp(), atol=0.04)


def test_every_token_has_the_networks_log_probability_whatever_may_be_drawn(network, log_probs):
    (row,) = generate(network, [[1, 5]], Ending(6), Sampling(temperature=0.5, top_k=3), likeliest=2)
    for i, token in enumerate(row.tokens):
        expected = log_probs([1, 5, *row.ids[:i]])
        assert token.log_prob == pytest.approx(float(expected[token.id]), abs=1e-5)
        best = expected.topk(2)
        assert [id_ for id_, _ in token.likeliest] == best.indices.tolist()
        assert [p for _, p in token.likeliest] == pytest.approx(best.values.tolist(), abs=1e-5)


def test_a_stream_yields_a_token_a_row_and_none_after_its_end(network):
    whole = generate(network, [[1], [3]], Ending(6, frozenset({0})), DRAWN)
    steps = list(stream(network, [[1], [3]], Ending(6, frozenset({0})), DRAWN))
    for row, continuation in enumerate(whole):
        column = [step[row] for step in steps]
        given = [token for token in column if token is not None]
        assert tuple(given) == continuation.tokens
        assert column[len(given) :] == [None] * (len(steps) - len(given))


def test_a_stream_does_no_more_work_than_is_asked_of_it(network):
    steps, read = stream(network, [[1]], Ending(30)), []
    hook = network.register_forward_hook(lambda *_: read.append(1))
    next(steps)
    next(steps)
    hook.remove()
    assert len(read) == 2


def test_a_long_prompt_keeps_its_end_and_says_so(network, caplog):
    prompt = [token % 7 for token in range(50)]
    assert ids(network, prompt, Ending(4)) == ids(network, prompt[-28:], Ending(4))
    assert "prompt cut from 50 to its last 28 tokens" in caplog.text


def test_a_network_can_be_trained_after_it_has_written():
    network = Transformer(from_depth(2, vocab_size=7, context=16))
    generate(network, [[1]], Ending(3))
    network.logits(network(torch.tensor([[1, 2]]))).sum().backward()
    assert all(parameter.grad is not None for parameter in network.parameters())


def test_choices_have_the_probabilities_of_their_tokens(network, score):
    choices = [[1], [2, 3], [2, 3, 6, 0], [5, 5]]
    (found,) = score_all(network, [([4, 1, 0], choices)])
    assert [nats for nats, _ in found] == pytest.approx(
        [score([4, 1, 0], tuple(c)) for c in choices], abs=1e-4
    )


def test_single_token_choices_over_the_vocabulary_sum_to_one(network):
    (found,) = score_all(network, [([4], [[token] for token in range(7)])])
    assert float(torch.tensor([nats for nats, _ in found]).exp().sum()) == pytest.approx(
        1, abs=1e-5
    )


def test_choices_of_many_prompts_are_those_of_each(network, score):
    prompts = [[4, 1, 0], [2] * 20, [2] * 20 + [1], [3]] * 5
    asked = [(prompt, [[1], [2, 3, 5], [6, place % 7]]) for place, prompt in enumerate(prompts)]
    told = []
    found = score_all(network, asked, progress=lambda *done: told.append(done))
    for row, (prompt, choices) in zip(found, asked, strict=True):
        assert [nats for nats, _ in row] == pytest.approx(
            [score(prompt, tuple(c)) for c in choices], abs=1e-4
        )
    (full,) = score_all(network, [([1] * 32, [[5]])])  # with its answer one above the context
    assert full[0].nats == pytest.approx(score([1] * 32, (5,)), abs=1e-4)
    assert told == [(done, 20) for done in range(1, 21)]
    with pytest.raises(ValueError, match="a choice has no tokens"):
        score_all(network, [([1], [[2], []])])


@pytest.mark.parametrize(
    ("prompts", "ending", "message"),
    [
        ([[1]], Ending(32), r"max_tokens is 32; it must be 1 to 31 \(the context is 32\)"),
        ([[1], []], Ending(3), "the prompt's length is 0; it must be at least 1"),
    ],
)
def test_what_does_not_fit_is_refused(network, prompts, ending, message):
    with pytest.raises(ValueError, match=message):
        generate(network, prompts, ending)


def test_families_that_cannot_write_alone_are_refused():
    encoder = from_depth(2, vocab_size=7, context=16, family="encoder")
    with pytest.raises(ValueError, match="family is 'encoder'"):
        generate(Transformer(encoder), [[1]], Ending(3))
    with pytest.raises(ValueError, match="max_tokens is 0; it must be at least 1"):
        Ending(0)
