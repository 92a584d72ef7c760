"""The engine of stage `preferences`: rows to tokens, and their log-probabilities by a model.

Letters: N answers, T positions.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save_file

from cluster.errors import BadInput
from cluster.store import Draft
from model.objectives.base import hidden_states
from model.objectives.preference import log_probs
from model.transformer import Transformer
from tasks.data.row_files import write_json_lines
from tasks.inference.generation import load_model
from tasks.tokens.chat import NO_LOSS, supervised
from tasks.tokens.encoder import Encoder
from tasks.tuning.common import keep_ledger
from tasks.tuning.prefer.rows import Preference, messages, preference_rows
from tasks.tuning.prefer.settings import PreferenceRows
from tasks.tuning.supervised import Example, marked

SIDES = ("train", "heldout")
SCORED_ROWS = 16
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Encoded:
    """Usable rows with the tokens of their answers, and the others with the reason."""

    rows: list[Preference]
    examples: list[list[Example]]
    cut: int
    rejects: list[dict[str, Any]]


def write_preferences(
    base: Path, settings: PreferenceRows, draft: Draft, reference: bool, single: bool
) -> None:
    """Carry out the stage."""
    network, encoder = load_model(base)
    if not isinstance(network, Transformer) or network.config.family != "decoder":
        raise BadInput(f"{base} is an {network.config.family}; preference tuning takes a decoder")
    length = min(settings.length or network.config.context, network.config.context)
    *sides, rejects = preference_rows(settings, single)
    train, heldout = (encode(rows, encoder, length) for rows in sides)
    for data, side in zip((settings.data, settings.heldout), (train, heldout), strict=True):
        if not side.rows:
            reasons = dict(rejects + Counter(row["reason"] for row in side.rejects))
            raise BadInput(f"'{data or settings.data}' has no usable row: {reasons or 'none'}")
    more = mismatched(train, encoder, length) if single else []
    for name, arrays in zip(
        SIDES, (laid_out(train, encoder.pad, more), laid_out(heldout, encoder.pad)), strict=True
    ):
        if reference or name != SIDES[0]:
            arrays["log_probs"] = scored(network, arrays, draft)
        save_file(arrays, draft.path / f"{name}.safetensors")
        draft.facts[f"longest_{name}"] = arrays["inputs"].shape[1]
    write_json_lines(draft.path / "heldout.jsonl", (row.record() for row in heldout.rows))
    account(draft, (train, heldout), rejects, encoder)


def account(
    draft: Draft, sides: Sequence[Encoded], rejected: Counter[str], encoder: Encoder
) -> None:
    """Ledger and facts of the draft, and `rejects.jsonl`."""
    found = [reject for side in sides for reject in side.rejects]
    keep_ledger(
        draft,
        sum(len(side.rows) for side in sides),
        rejected + Counter(reject["reason"] for reject in found),
    )
    write_json_lines(draft.path / "rejects.jsonl", found)
    draft.facts |= {
        "training_rows": len(sides[0].rows),
        "heldout_rows": len(sides[1].rows),
        "answers_cut": sum(side.cut for side in sides),
        "supervised_example": [marked(encoder, one) for one in sides[0].examples[0]],
    }


def encode(rows: Sequence[Preference], encoder: Encoder, length: int) -> Encoded:
    """Tokens of every row whose answers are there, differ, and have room behind the prompt.

    An answer that does not fit whole is cut, and then does not end with the end of its turn.
    """
    kept: list[Preference] = []
    examples: list[list[Example]] = []
    rejects: list[dict[str, Any]] = []
    cut = 0
    for row in rows:
        whole = [tokens(encoder, row, answer) for answer in row.answers]
        found = [(inputs[:length], targets[:length]) for inputs, targets in whole]
        if reason := unusable(row, found):
            rejects.append({"row": row.number, "id": row.id, "reason": reason})
            continue
        kept.append(row)
        examples.append(found)
        cut += sum(len(inputs) > length for inputs, _ in whole)
    return Encoded(kept, examples, cut, rejects)


def tokens(encoder: Encoder, row: Preference, answer: Sequence[tuple[str, str]]) -> Example:
    """Inputs and targets of a prompt and an answer to it, which alone has targets."""
    return supervised(encoder, messages((*row.prompt, *answer)), first=len(row.prompt))


def unusable(row: Preference, examples: Sequence[Example]) -> str | None:
    """Why nothing can be learnt from a row."""
    if not all(answer[-1][1].strip() for answer in row.answers):
        return "no_answer"
    if any(all(target == NO_LOSS for target in targets) for _, targets in examples):
        return "prompt_too_long"
    if len(examples) == 2 and examples[0] == examples[1]:
        same = row.answers[0] == row.answers[1]
        return "same_answers" if same else "same_answers_when_cut"
    return None


def laid_out(side: Encoded, pad: int, more: Sequence[Example] = ()) -> Arrays:
    """The answers of all rows, those of a row together: `inputs` and `answers` (-100 where there is
    no answer) `[N, T]` and `lengths` `[N]`, then `more` examples in the same way; and for all but
    these `wanted`, and the number of the row, `item`.
    """
    examples = [*(one for found in side.examples for one in found), *more]
    lengths = np.array([len(inputs) for inputs, _ in examples], np.int64)
    shape = (len(examples), int(lengths.max()))
    arrays = {
        "inputs": np.full(shape, pad, np.int32),
        "answers": np.full(shape, NO_LOSS, np.int32),
        "lengths": lengths,
        "wanted": np.array([yes for row in side.rows for yes in row.wanted], np.int64),
        "item": np.array([n for n, row in enumerate(side.rows) for _ in row.answers], np.int64),
    }
    for number, (inputs, targets) in enumerate(examples):
        arrays["inputs"][number, : len(inputs)] = inputs
        arrays["answers"][number, : len(targets)] = targets
    return arrays


def mismatched(side: Encoded, encoder: Encoder, length: int) -> list[Example]:
    """Each prompt with the answer to the next row's, from which KTO tells how far the model is from
    its reference, as TRL has it. The order of the rows is that of hashes.
    """
    partners = [*side.rows[1:], side.rows[0]]
    pairs = zip(side.rows, partners, strict=True)
    found = (tokens(encoder, row, other.answers[0]) for row, other in pairs)
    return [(inputs[:length], targets[:length]) for inputs, targets in found]


@torch.no_grad()
def scored(network: Transformer, arrays: Arrays, draft: Draft) -> np.ndarray:
    """Log-probability of each answer, the sum over its tokens in nats, `[N]`."""
    network.eval()
    lengths = arrays["lengths"]
    order, found = np.argsort(lengths, kind="stable"), np.zeros(len(lengths), np.float32)
    for first in range(0, len(order), SCORED_ROWS):
        some = order[first : first + SCORED_ROWS]
        rows = {name: torch.from_numpy(array) for name, array in rows_of(arrays, some).items()}
        answers = rows.pop("answers")
        found[some] = log_probs(network, hidden_states(network, **rows), answers).numpy()
        draft.progress(first + len(some), len(order), "answers")
    return found


def rows_of(arrays: Arrays, numbers: np.ndarray) -> Arrays:
    """The answers of these numbers, which may have any shape, as long as the longest of them."""
    lengths = arrays["lengths"][numbers]
    places = np.arange(int(lengths.max()))
    inputs, answers = (
        arrays[name][numbers][..., : len(places)].astype(np.int64) for name in ("inputs", "answers")
    )
    return {
        "inputs": inputs,
        "documents": (places < lengths[..., None]).astype(np.int64),
        "positions": np.broadcast_to(places, inputs.shape).copy(),
        "answers": answers,
    }
