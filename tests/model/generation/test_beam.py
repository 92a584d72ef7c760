"""Beam search against all there is to find, and against transformers; minimum Bayes risk."""

import itertools

import pytest

from model.generation import Ending, beam_search, generate, minimum_bayes_risk

VOCAB = range(7)


def answers(length: int, stop: int | None = None) -> list[tuple[int, ...]]:
    """Every continuation of `length` tokens, or that ends in `stop` before."""
    others = [token for token in VOCAB if token != stop]
    whole = list(itertools.product(others, repeat=length))
    if stop is None:
        return whole
    bodies = (body for n in range(length) for body in itertools.product(others, repeat=n))
    return [*whole, *((*body, stop) for body in bodies)]


def test_a_beam_as_wide_as_the_tree_finds_the_likeliest_sequence(network, score):
    best = max(answers(3), key=lambda answer: score([2], answer))
    found = beam_search(network, [2], Ending(3), beams=49)
    assert found.ids == list(best)
    assert found.log_prob == pytest.approx(score([2], best), abs=1e-4)


@pytest.mark.parametrize("length_penalty", [-2.0, 0.0, 0.6, 1.0, 4.0])
@pytest.mark.parametrize("stop", [0, 3, 5])
def test_a_wide_beam_finds_the_best_of_all_ended_and_cut_answers(
    network, score, stop, length_penalty
):
    def value(answer: tuple[int, ...]) -> float:
        return score([0], answer) / ((5 + len(answer)) / 6) ** length_penalty

    best = max(answers(3, stop), key=value)
    ending = Ending(3, frozenset({stop}))
    found = beam_search(network, [0], ending, beams=49, length_penalty=length_penalty)
    assert found.ids == [token for token in best if token != stop]
    assert found.reason == ("stop" if stop in best else "length")


def test_the_length_penalty_favours_longer_answers(network):
    def length(penalty: float) -> int:
        ending = Ending(12, frozenset({3}))
        return len(beam_search(network, [0], ending, beams=20, length_penalty=penalty).ids)

    lengths = [length(penalty) for penalty in (-3.0, 0.0, 2.0, 20.0)]
    assert lengths == sorted(lengths)
    assert lengths[0] < lengths[-1] == 12


def test_one_beam_is_greedy(network):
    beam = beam_search(network, [2, 4], Ending(6), beams=1)
    assert beam.ids == generate(network, [[2, 4]], Ending(6))[0].ids


def test_a_hypothesis_ends_where_a_condition_holds(network, score):
    ending = Ending(3, stopped=lambda tokens: tuple(tokens[-2:]) == (5, 5))
    allowed = {a[:2] if a[:2] == (5, 5) else a for a in answers(3)}
    best = max(allowed, key=lambda answer: score([2], answer))
    assert beam_search(network, [2], ending, beams=49).ids == list(best)


def test_no_beam_is_refused(network):
    with pytest.raises(ValueError, match="num_beams is 0; it must be at least 1"):
        beam_search(network, [1], Ending(3), beams=0)


@pytest.mark.parametrize("beams", [2, 3, 5])
def test_beams_find_what_those_of_transformers_find(network, tmp_path, beams):
    import torch
    from transformers import AutoModelForCausalLM

    from model import hub

    hub.save(tmp_path, network)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path)
    for stop, start in itertools.product((0, 3, 5), VOCAB):
        prompt = torch.tensor([[start, 2]])
        written = theirs.generate(
            prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=7,
            num_beams=beams, length_penalty=0.0, early_stopping="never", eos_token_id=stop,
            pad_token_id=stop,
        )  # fmt: skip
        expected = written[0, 2:].tolist()
        expected = expected[: expected.index(stop)] if stop in expected else expected
        ending = Ending(7, frozenset({stop}))
        assert beam_search(network, [start, 2], ending, beams=beams).ids == expected


def test_minimum_bayes_risk_takes_the_candidate_most_like_the_others():
    def overlap(a: str, b: str) -> float:
        return len(set(a) & set(b)) / len(set(a) | set(b))

    assert minimum_bayes_risk(["abc", "xyz", "abd", "abe"], overlap) == 0
    assert minimum_bayes_risk(["xyz", "abd", "abd", "abc"], overlap) == 1


def test_minimum_bayes_risk_counts_a_candidate_as_often_as_it_was_drawn():
    def same(a: str, b: str) -> float:
        return float(a == b)

    assert minimum_bayes_risk(["x", "y", "y", "z"], same) == 1
    assert minimum_bayes_risk(["x", "y"], same) == 0
    assert minimum_bayes_risk([3.0, 1.0, 2.0], lambda a, b: -abs(a - b)) == 2


def test_minimum_bayes_risk_asks_for_the_utility_of_each_pair_once():
    asked = []
    minimum_bayes_risk(["x", "y", "y"], lambda a, b: asked.append((a, b)) or 0.0)
    assert sorted(asked) == [("x", "y"), ("y", "x"), ("y", "y")]
