"""Every objective on one sentence, input by input and target by target: the field guide's table.

"The kitten is chasing the ball ." `_` marks a position without loss. Where a transform has a class
token in front, its position has no loss either, and the target begins with one more `_`.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from model.objectives import masking, noising, pairs, permuted, rows, spans
from model.objectives.modules import CausalLM, TokenLM, with_objective
from model.objectives.rows import IGNORED
from model.presets import preset
from model.shapes import from_depth, resized
from model.transformer import Transformer

SENTENCE = "The kitten is chasing the ball ."
NEXT = "The ball rolls away swiftly ."
WORDS = dict.fromkeys(
    f"[C] [S] [M] [X] [Y] [Z] [E] [P] {SENTENCE} {NEXT} playing Birds eat worms".split()
)
IDS = {word: i for i, word in enumerate(WORDS)}


def ids(text: str) -> np.ndarray:
    return np.array([IGNORED if word == "_" else IDS[word] for word in text.split()], np.int64)


def words(tokens: np.ndarray) -> str:
    names = {i: word for word, i in IDS.items()} | {IGNORED: "_"}
    return " ".join(names[int(token)] for token in tokens)


CLASS, MASK, START = IDS["[C]"], IDS["[M]"], IDS["[P]"]
KITTEN = ids(SENTENCE)
PAIR = ids(f"{SENTENCE} {NEXT}")


def test_causal_lm_predicts_each_token_from_those_before_it() -> None:
    """The loss of the sentence is the sum over its tokens of -log p(token | tokens before it)."""
    torch.manual_seed(0)
    network = Transformer(from_depth(2, vocab_size=len(IDS), context=8))
    torch.nn.init.normal_(network.blocks[0].attention.inner.out.weight)
    tokens = torch.from_numpy(np.append(CLASS, KITTEN))[None]
    losses = CausalLM(network).token_losses(tokens[:, :-1], tokens[:, 1:])[0]
    for t, target in enumerate(KITTEN):
        before = tokens[:, : t + 1]  # and nothing of what comes later
        log_probs = network.logits(network(before))[0, -1].log_softmax(-1)
        assert losses[t].item() == pytest.approx(-log_probs[target].item(), abs=1e-5)


def test_prefix_lm() -> None:
    row = rows.sequence_to_sequence_row(KITTEN[:3], KITTEN[3:], START, head=[CLASS])
    assert words(row["inputs"]) == "[C] The kitten is"
    assert words(row["targets"]) == "chasing the ball ."
    assert words(row["decoder_inputs"]) == "[P] chasing the ball"


def test_prefix_lm_of_a_decoder() -> None:
    row = rows.prefix_row(KITTEN[:3], KITTEN[3:], head=[CLASS])
    assert words(row["inputs"]) == "[C] The kitten is chasing the ball"
    assert words(row["targets"]) == "_ _ _ chasing the ball ."
    assert row["prefix"].tolist() == [1, 1, 1, 1, 0, 0, 0]


def masked(positions: list[int], replacements: str) -> tuple[str, str]:
    row = rows.text_row([CLASS], KITTEN)
    inputs, targets = masking.mask_tokens(row["inputs"], np.array(positions), ids(replacements))
    return words(inputs), words(targets)


def test_masked_lm() -> None:
    inputs, targets = masked([3, 6], "[M] [M]")
    assert inputs == "[C] The kitten [M] chasing the [M] ."
    assert targets == "_ _ _ is _ _ ball _"


def test_bert_style_has_loss_on_masked_random_and_kept_tokens() -> None:
    inputs, targets = masked([2, 3, 4, 6], "kitten [M] playing [M]")
    assert inputs == "[C] The kitten [M] playing the [M] ."
    assert targets == "_ _ kitten is chasing _ ball _"


def test_mass() -> None:
    source, decoder, targets = masking.mask_span(KITTEN, start=2, length=3, mask=MASK)
    assert words(rows.text_row([CLASS], source)["inputs"]) == "[C] The kitten [M] [M] [M] ball ."
    assert words(targets) == "_ _ is chasing the _ _"
    # The decoder sees of the span what comes before each target, and nothing the encoder sees.
    assert words(decoder) == "[M] [M] [M] is chasing [M] [M]"


RANKS = [5, 7, 6, 1, 4, 2, 3]
"""The kitten ... : positions 1..7 come 5th, 7th, 6th, 1st, 4th, 2nd, 3rd."""


def test_permuted_lm_asks_for_the_tokens_in_the_order() -> None:
    row = permuted.permuted_row(KITTEN, np.argsort(RANKS), 7, CLASS, MASK)
    asked = row["targets"] != IGNORED
    assert words(row["targets"][asked]) == "chasing ball . the The is kitten"
    assert row["positions"][asked].tolist() == [4, 6, 7, 5, 1, 3, 2]
    assert words(row["inputs"][asked]) == "[M] [M] [M] [M] [M] [M] [M]"
    told = {
        int(p): words([i])
        for p, i in zip(row["positions"], row["inputs"], strict=True)
        if i != MASK
    }
    assert told == {0: "[C]"} | {p: w for p, w in enumerate(SENTENCE.split(), 1) if p != 2}


def test_permuted_lm_predicts_each_token_from_those_earlier_in_the_order() -> None:
    """Changing one token changes the predictions of those later in the order, and no others."""
    torch.manual_seed(0)
    network = Transformer(from_depth(2, vocab_size=len(IDS), context=16)).double()
    for block in network.blocks:
        torch.nn.init.normal_(block.attention.inner.out.weight, std=0.1)
        torch.nn.init.normal_(block.feedforward.inner.down.weight, std=0.1)

    def losses(tokens: np.ndarray) -> dict[int, float]:
        row = permuted.permuted_row(tokens, np.argsort(RANKS), 7, CLASS, MASK)
        batch = {name: torch.from_numpy(values)[None] for name, values in row.items()}
        found = TokenLM(network).token_losses(**batch)[0]
        asked = row["targets"] != IGNORED
        places = row["positions"][asked].tolist()
        return dict(zip(places, found[torch.from_numpy(asked)].tolist(), strict=True))

    before = losses(KITTEN)
    for place in range(1, 8):
        other = KITTEN.copy()
        other[place - 1] = IDS["worms"]
        after = losses(other)
        changed = {p for p in before if p != place and abs(before[p] - after[p]) > 1e-12}
        assert changed == {p for p in before if RANKS[p - 1] > RANKS[place - 1]}


def test_an_encoder_is_asked_behind_the_text() -> None:
    row = permuted.two_stream_row(KITTEN, np.argsort(RANKS), 3, 4, CLASS, MASK)
    assert words(row["inputs"]) == f"[C] {SENTENCE} [M] [M] [M]"
    assert words(row["targets"][-3:]) == "The is kitten" and (row["targets"][:-3] == IGNORED).all()
    assert row["positions"].tolist() == [*range(8), 1, 3, 2]
    assert row["order"].tolist() == [0, 1, 3, 2, 0, 0, 0, 0, -1, -2, -3]
    assert row["segments"].tolist() == [0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0]


@pytest.mark.parametrize("name", ["bert-base-uncased", "xlnet-base-cased"])
def test_an_encoder_predicts_each_token_from_those_earlier_in_the_order(name: str) -> None:
    """And from all that are not predicted; of its own token a query knows the place alone."""
    torch.manual_seed(0)
    small = resized(preset(name), depth=2, width=16, heads=2)
    network = Transformer(replace(small, vocab_size=len(IDS), context=16)).double().eval()
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.3)

    def losses(tokens: np.ndarray) -> dict[int, float]:
        row = permuted.two_stream_row(tokens, np.argsort(RANKS), 5, 4, CLASS, MASK)
        batch = {name: torch.from_numpy(values)[None] for name, values in row.items()}
        found = with_objective(network, "permuted").token_losses(**batch)[0][-5:]
        return dict(zip(row["positions"][-5:].tolist(), found.tolist(), strict=True))

    before = losses(KITTEN)
    for place in range(1, 8):
        other = KITTEN.copy()
        other[place - 1] = IDS["worms"]
        after = losses(other)
        changed = {p for p in before if p != place and abs(before[p] - after[p]) > 1e-12}
        assert changed == {p for p in before if RANKS[p - 1] > RANKS[place - 1]}


def test_next_sentence() -> None:
    other = ids("Birds eat worms .")
    row = pairs.joined_row(KITTEN, other, 0, CLASS, IDS["[S]"])
    assert words(row["inputs"]) == f"[C] {SENTENCE} [S] Birds eat worms . [S]"
    assert row["labels"] == 0  # NotNext
    assert row["segments"].tolist() == [0] * 9 + [1] * 5


def test_sentence_comparison() -> None:
    row = pairs.separate_row(KITTEN, ids("Birds eat worms ."), 0, CLASS)
    assert words(row["inputs"]) == f"[C] {SENTENCE} [C] Birds eat worms ."
    assert row["documents"].tolist() == [1] * 8 + [2] * 5
    assert row["positions"].tolist() == [*range(8), *range(5)]


def seen(noised: np.ndarray) -> str:
    """The encoder's side of a denoiser; the target is always the text itself."""
    row = rows.sequence_to_sequence_row(noised, KITTEN, START, head=[CLASS])
    assert words(row["targets"]) == SENTENCE
    return words(row["inputs"])


def test_token_reordering() -> None:
    source = noising.reorder(KITTEN[:, None], [6, 1, 4, 3, 0, 2, 5])
    assert seen(source) == "[C] . kitten the chasing The is ball"


def test_token_deletion() -> None:
    assert seen(noising.delete_tokens(KITTEN, np.array([3]))) == "[C] The kitten is the ball ."


def test_span_masking_hides_spans_of_any_length_none_included() -> None:
    noised = noising.infill(KITTEN, np.array([2, 3]), np.array([0, 3]), MASK)
    assert seen(noised) == "[C] The kitten [M] is [M] ."


def test_sentinel_masking() -> None:
    sentinels = ids("[X] [Y] [Z]")
    starts, lengths = np.array([2, 5]), np.array([2, 2])
    source, target = spans.corrupt_spans(KITTEN, starts, lengths, sentinels)
    assert words(rows.text_row([CLASS], source)["inputs"]) == "[C] The kitten [X] the [Y]"
    assert words(target) == "[X] is chasing [Y] ball ."


def test_sentinel_masking_as_t5_has_it_closes_and_ends() -> None:
    sentinels = ids("[X] [Y] [Z]")
    starts, lengths = np.array([2, 5]), np.array([2, 2])
    source, target = spans.corrupt_spans(KITTEN, starts, lengths, sentinels, IDS["[E]"])
    assert words(source) == "The kitten [X] the [Y] [E]"
    assert words(target) == "[X] is chasing [Y] ball . [Z] [E]"


def test_sentence_reordering() -> None:
    ends = np.array([word == "." for word in IDS])
    parts = noising.sentences(PAIR, ends)
    assert [words(part) for part in parts] == [SENTENCE, NEXT]
    assert words(noising.reorder(parts, [1, 0])) == f"{NEXT} {SENTENCE}"


def test_document_rotation() -> None:
    rotated = noising.rotate(PAIR, 3)
    assert words(rotated) == "chasing the ball . The ball rolls away swiftly . The kitten is"
