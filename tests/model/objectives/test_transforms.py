"""Rows of every objective on random texts: lengths, statistics, and what must come back."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.objectives import noising, spans
from model.objectives.catalog import OBJECTIVES, special_tokens
from model.objectives.lengths import UL2, Rates, denoiser_window, sentinels, window
from model.objectives.rows import IGNORED, Row, Vocabulary
from model.objectives.transforms import Setup, denoise

STOP, WORDS, CONTEXT = 99, 1000, 128
ALL = [
    (name, family)
    for name, about in OBJECTIVES.items()
    if name != "causal"
    for family in about.families
]
properties = settings(deadline=None, max_examples=40)


def setup_of(vocabulary: Vocabulary, name: str, family: str, context: int = CONTEXT) -> Setup:
    rate = OBJECTIVES[name].rate or Rates.rate
    return Setup(name, family, context, vocabulary, Rates(rate=rate))


def generator(*key: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=list(key)))


def text(vocabulary: Vocabulary, length: int, seed: int = 0, ends: float = 0.02) -> np.ndarray:
    """Random words, some full stops, and now and then the end of a document."""
    random = generator(seed, 1)
    words = random.choice(vocabulary.ordinary_N, length)
    words = np.where(random.random(length) < 0.1, STOP, words)
    return np.where(random.random(length) < ends, vocabulary["end"], words)


def row_of(setup: Setup, seed: int, key: int = 0) -> Row:
    tokens = text(setup.vocabulary, setup.window, seed)
    return setup.row(tokens, generator(seed, key), text(setup.vocabulary, setup.window, seed + 1))


@pytest.mark.parametrize(("name", "family"), ALL)
@properties
@given(seed=st.integers(0, 1000), context=st.integers(16, 200))
def test_every_row_fits_and_has_something_to_predict(
    vocabulary: Vocabulary, name: str, family: str, seed: int, context: int
) -> None:
    setup = setup_of(vocabulary, name, family, context)
    row = row_of(setup, seed)
    assert all(len(v) <= context for k, v in row.items() if v.ndim and k != "decoder_inputs")
    assert len(row.get("decoder_inputs", ())) <= setup.target_length
    batch = setup.batch([row, row_of(setup, seed + 7)])
    assert {v.shape for k, v in batch.items() if k in ("inputs", "documents", "positions")} == {
        (2, context)
    }
    assert np.isin(batch["inputs"], np.arange(WORDS)).all()
    if "targets" in batch:
        kept = batch["targets"] != IGNORED
        assert kept.any(axis=1).all()
        assert np.isin(batch["targets"][kept], np.arange(WORDS)).all()
    else:
        assert set(batch["labels"].tolist()) <= {0, 1}


@pytest.mark.parametrize(("name", "family"), ALL)
def test_a_row_depends_on_seed_and_sample_alone(
    vocabulary: Vocabulary, name: str, family: str
) -> None:
    setup = setup_of(vocabulary, name, family)
    same, again, other = row_of(setup, 3, 5), row_of(setup, 3, 5), row_of(setup, 3, 6)
    assert same.keys() == again.keys()
    assert all(np.array_equal(same[key], again[key]) for key in same)
    drawn = any(not np.array_equal(same[key], other[key]) for key in same)
    assert drawn == (name != "bidirectional")
    alone = setup.batch([same])
    company = setup.batch([other, same])
    assert all(np.array_equal(alone[key][0], company[key][1]) for key in alone)


def within(count: int, trials: int, share: float) -> bool:
    """Whether a binomial count lies within five standard deviations of its mean."""
    return abs(count - trials * share) < 5 * (trials * share * (1 - share)) ** 0.5 + 1


def test_bert_hides_15_percent_of_which_80_10_10(vocabulary: Vocabulary) -> None:
    setup = setup_of(vocabulary, "masked", "encoder")
    eligible = chosen = mask = kept = other = 0
    seen: set[int] = set()
    for key in range(400):
        tokens = text(vocabulary, setup.window, seed=key)
        row = setup.row(tokens, generator(0, key), tokens)
        hidden = row["targets"] != IGNORED
        inputs, targets = row["inputs"][hidden], row["targets"][hidden]
        assert not np.isin(targets, list(vocabulary.ids.values())).any()
        eligible += int((~np.isin(tokens, list(vocabulary.ids.values()))).sum())
        chosen += len(targets)
        mask += int((inputs == vocabulary["mask"]).sum())
        kept += int((inputs == targets).sum())
        replaced = (inputs != targets) & (inputs != vocabulary["mask"])
        other += int(replaced.sum())
        seen |= set(inputs[replaced].tolist())
        left = row["inputs"][~hidden]
        assert np.array_equal(left[left != vocabulary["class"]], _unhidden(tokens, row, vocabulary))
    assert within(chosen, eligible, 0.15)
    assert within(mask, chosen, 0.8) and within(kept, chosen, 0.1) and within(other, chosen, 0.1)
    assert seen <= set(vocabulary.ordinary_N.tolist()) and len(seen) > 300


def _unhidden(tokens: np.ndarray, row: Row, vocabulary: Vocabulary) -> np.ndarray:
    """The tokens of a text that a row shows."""
    text_places = row["inputs"] != vocabulary["class"]
    hidden = (row["targets"] != IGNORED)[text_places]
    return tokens[: len(hidden)][~hidden]


def test_positions_are_all_equally_likely(vocabulary: Vocabulary) -> None:
    setup = setup_of(vocabulary, "masked", "encoder", context=21)
    tokens = vocabulary.ordinary_N[:20]
    counts = np.zeros(21)
    for key in range(4000):
        counts += setup.row(tokens, generator(1, key), tokens)["targets"] != IGNORED
    assert counts[0] == 0  # the class token
    assert all(within(int(count), 4000, 3 / 20) for count in counts[1:])


@pytest.mark.parametrize("name", ["next_sentence", "sentence_order", "sentence_comparison"])
def test_half_of_the_pairs_are_true(vocabulary: Vocabulary, name: str) -> None:
    setup = setup_of(vocabulary, name, "encoder")
    labels = [int(row_of(setup, key, key)["labels"]) for key in range(2000)]
    assert within(sum(labels), 2000, 0.5)


def parts(row: Row, vocabulary: Vocabulary) -> tuple[np.ndarray, np.ndarray]:
    """The two texts of a row without masks undone."""
    clean = np.where(row["targets"] == IGNORED, row["inputs"], row["targets"])
    at = np.flatnonzero(clean == vocabulary["separator"])
    return clean[1 : at[0]], clean[at[0] + 1 : at[1]]


def test_a_next_sentence_is_the_next_and_another_is_of_another_text(vocabulary: Vocabulary) -> None:
    setup = setup_of(vocabulary, "next_sentence", "encoder")
    for key in range(200):
        tokens = text(vocabulary, setup.window, seed=key, ends=0)
        other = text(vocabulary, setup.window, seed=key + 5000, ends=0)
        row = setup.row(tokens, generator(0, key), other)
        first, second = parts(row, vocabulary)
        assert np.array_equal(first, tokens[: len(first)])
        assert first[-1] == STOP
        if row["labels"]:
            assert np.array_equal(second, tokens[len(first) :])
        else:
            windows = np.lib.stride_tricks.sliding_window_view(other, len(second))
            assert (windows == second).all(axis=1).any()


def test_without_another_text_every_pair_is_true(vocabulary: Vocabulary) -> None:
    setup = setup_of(vocabulary, "next_sentence", "encoder")
    tokens, none = text(vocabulary, setup.window), np.empty(0, np.int64)
    assert all(setup.row(tokens, generator(0, key), none)["labels"] for key in range(50))


def test_sentence_order_swaps(vocabulary: Vocabulary) -> None:
    setup = setup_of(vocabulary, "sentence_order", "encoder")
    for key in range(50):
        tokens = text(vocabulary, setup.window, seed=key, ends=0)
        row = setup.row(tokens, generator(0, key), tokens)
        first, second = parts(row, vocabulary)
        order = (first, second) if row["labels"] else (second, first)
        assert np.array_equal(np.concatenate(order), tokens)


@properties
@given(
    seed=st.integers(0, 10**6),
    tokens=st.integers(2, 300),
    rate=st.floats(0.05, 0.9),
    span=st.floats(1, 20),
)
def test_spans_put_back_give_the_text(
    vocabulary: Vocabulary, seed: int, tokens: int, rate: float, span: float
) -> None:
    rates = Rates(rate=rate, span=span)
    words = text(vocabulary, tokens, seed, ends=0)
    starts, lengths = spans.choose_spans(tokens, rates, generator(seed, 2))
    marks = WORDS + np.arange(len(starts) + 1)
    end = WORDS + 500
    source, target = spans.corrupt_spans(words, starts, lengths, marks, end)
    assert source[-1] == end and target[-1] == end and target[-2] == marks[-1]
    assert lengths.sum() == min(max(1, round(tokens * rate)), tokens - 1)
    told = np.split(target, np.flatnonzero(target >= WORDS))[1:-2]
    answers = {int(part[0]): part[1:] for part in told}
    assert list(answers) == marks[:-1].tolist() and all(len(part) for part in answers.values())
    back = [answers.get(int(token), np.array([token])) for token in source[:-1]]
    assert np.array_equal(np.concatenate(back), words)


@pytest.mark.parametrize("family", ["decoder", "encoder_decoder"])
def test_t5_spans_fill_the_row_and_are_three_tokens_long(
    vocabulary: Vocabulary, family: str
) -> None:
    setup = setup_of(vocabulary, "span_corruption", family)
    row = row_of(setup, 1)
    assert CONTEXT - 2 <= len(row["inputs"]) <= CONTEXT
    told = row["targets"][row["targets"] != IGNORED]
    count = sentinels("span_corruption", family, CONTEXT, Rates())
    marks = np.isin(told, vocabulary.sentinels(count))
    assert marks.sum() == count
    hidden = len(told) - count - 1  # an end token
    assert hidden / (count - 1) == pytest.approx(3, abs=0.5)
    assert hidden / setup.window == pytest.approx(0.15, abs=0.01)


@properties
@given(seed=st.integers(0, 10**6), tokens=st.integers(2, 300), rate=st.floats(0.05, 0.9))
def test_infilling_hides_its_share_and_shows_the_rest_in_order(
    vocabulary: Vocabulary, seed: int, tokens: int, rate: float
) -> None:
    words = text(vocabulary, tokens, seed, ends=0)
    starts, lengths = noising.choose_infilling(tokens, Rates(rate=rate), generator(seed, 3))
    assert (starts[1:] > starts[:-1] + lengths[:-1]).all(), "shown tokens between spans"
    mask = WORDS
    noised = noising.infill(words, starts, lengths, mask)
    assert (noised == mask).sum() == len(starts)
    hidden = np.zeros(tokens, bool)
    for start, length in zip(starts, lengths, strict=True):
        hidden[start : start + length] = True
    assert np.array_equal(noised[noised != mask], words[~hidden])
    if rate < 0.5:
        assert hidden.sum() == max(1, round(tokens * rate))


def test_infilling_spans_have_poisson_lengths() -> None:
    lengths = np.concatenate(
        [
            noising.choose_infilling(2000, Rates(rate=0.3), generator(0, key))[1][:-1]
            for key in range(50)
        ]
    )
    assert lengths.mean() == pytest.approx(3, abs=0.15)
    assert lengths.var() == pytest.approx(3, abs=0.3)
    assert (lengths == 0).mean() == pytest.approx(np.exp(-3), abs=0.015)


@pytest.mark.parametrize("name", ["token_reordering", "sentence_permutation", "document_rotation"])
def test_reordering_keeps_every_token(vocabulary: Vocabulary, name: str) -> None:
    setup = setup_of(vocabulary, name, "encoder_decoder")
    for key in range(50):
        row = row_of(setup, key, key)
        told = row["targets"][:-1]
        assert row["targets"][-1] == vocabulary["end"]
        assert np.array_equal(np.sort(row["inputs"][1:]), np.sort(told))
        assert np.array_equal(row["decoder_inputs"], np.append(vocabulary["pad"], told))


def test_a_rotated_document_turns_back(vocabulary: Vocabulary) -> None:
    setup = setup_of(vocabulary, "document_rotation", "encoder_decoder")
    row = row_of(setup, 2)
    turns = [noising.rotate(row["inputs"][1:], k) for k in range(setup.window)]
    assert any(np.array_equal(turn, row["targets"][:-1]) for turn in turns)


@pytest.mark.parametrize("family", ["decoder", "encoder_decoder"])
def test_a_mixture_draws_its_tasks_evenly_and_announces_them(
    vocabulary: Vocabulary, family: str
) -> None:
    setup = setup_of(vocabulary, "mixture_of_denoisers", family)
    modes = [int(row_of(setup, 1, key)["inputs"][0]) for key in range(2100)]
    for mode, tasks in (("denoise_r", 2), ("denoise_x", 4), ("denoise_s", 1)):
        assert within(modes.count(vocabulary[mode]), 2100, tasks / 7)


def test_the_s_denoiser_continues_a_text(vocabulary: Vocabulary) -> None:
    setup = setup_of(vocabulary, "mixture_of_denoisers", "encoder_decoder")
    tokens = text(vocabulary, setup.window, ends=0)
    row = denoise(setup, UL2[-1], tokens, generator(0, 0))
    room = denoiser_window(UL2[-1], "encoder_decoder", CONTEXT)
    assert np.array_equal(np.concatenate((row["inputs"][1:], row["targets"])), tokens[:room])
    assert len(row["targets"]) / room == pytest.approx(0.25, abs=0.01)


@pytest.mark.parametrize(("name", "family"), ALL)
@pytest.mark.parametrize("context", [2, 8, 64, 500])
def test_there_is_a_token_for_all_that_a_row_needs(
    vocabulary: Vocabulary, name: str, family: str, context: int
) -> None:
    """Special tokens are derived from context and rates: no row asks for one that is missing."""
    rates = Rates(rate=OBJECTIVES[name].rate or Rates.rate)
    try:
        window(name, family, context, rates)
    except ValueError as error:
        assert context < 8 and "has no room" in str(error)
        return
    kinds = special_tokens(name, family, context, rates)
    ids = {kind: i for i, kind in enumerate(("end", "pad", *kinds))}
    few = Vocabulary(ids, np.arange(200, WORDS), np.arange(WORDS) == STOP)
    setup = Setup(name, family, context, few, rates)
    for key in range(20):
        row_of(setup, key, key)


def test_documents_of_an_encoder_begin_with_a_class_token(vocabulary: Vocabulary) -> None:
    end, class_ = vocabulary["end"], vocabulary["class"]
    setup = setup_of(vocabulary, "masked", "encoder", context=9)
    words = vocabulary.ordinary_N
    tokens = np.array([words[0], words[1], end, words[2], end, words[3], words[4], end])
    row = setup.row(tokens, generator(0, 0), tokens)
    clean = np.where(row["targets"] == IGNORED, row["inputs"], row["targets"])
    assert clean.tolist() == [
        class_,
        words[0],
        words[1],
        end,
        class_,
        words[2],
        end,
        class_,
        words[3],
    ]
    assert row["documents"].tolist() == [1, 1, 1, 1, 2, 2, 2, 3, 3]
    assert row["positions"].tolist() == [0, 1, 2, 3, 0, 1, 2, 0, 1]
