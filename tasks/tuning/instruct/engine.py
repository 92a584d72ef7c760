"""The engine of stage `instruct`: pairs to supervised rows, training, loss on held-out answers."""

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from cluster.artifact import Artifact, brought
from cluster.errors import BadInput
from cluster.handover import here, share
from cluster.store import Draft
from model import hub
from model.flops import flops_per_token
from model.objectives.modules import CausalLM
from model.transformer import Transformer
from tasks.data.row_files import write_json_lines
from tasks.inference.generation import load_model
from tasks.tokens.chat import NO_LOSS, supervised
from tasks.tokens.encoder import Encoder
from tasks.training.job import Program
from tasks.training.launch import launch, load_trained
from tasks.tuning.common import add_ends, keep_ledger, save_model, track, tuning_job, write_history
from tasks.tuning.instruct.figures import Answers, answers, batches, gain
from tasks.tuning.instruct.settings import InstructSettings
from tasks.tuning.rows import Pair, held_apart
from tasks.tuning.sources import describe, instruction_pairs
from tasks.tuning.supervised import Example, pack, sample_numbers
from tasks.tuning.trained_part import trained_part

ROWS = "rows.safetensors"
VALIDATION = "validation.safetensors"
log = logging.getLogger("headrace.instruct")


@dataclass(frozen=True)
class Supervised:
    """Usable pairs with their tokens, and the others with the reason."""

    pairs: list[Pair]
    examples: list[Example]
    cut: int
    rejects: list[dict[str, Any]]


def tune(
    model: Artifact, settings: InstructSettings, seed: int, draft: Draft, made: Sequence[Pair]
) -> None:
    """Carry out the stage; `made` are pairs that a model made, to be learnt from too."""
    track(draft, settings, seed, model=model)
    base = model.path
    network, encoder = load_model(base)
    if not isinstance(network, Transformer):
        raise BadInput(f"{base} is an encoder-decoder; instruct tuning takes a decoder")
    context = network.config.context
    train, heldout, apart = usable_rows(settings, encoder, context, draft, made)
    rows = draft.scratch / "rows"
    rows.mkdir(exist_ok=True)
    for name, part in ((ROWS, train), (VALIDATION, apart)):
        save_file(pack(part.examples, context, encoder.pad), rows / name)
    share(rows)
    module = trained_part(CausalLM(network), settings, base)
    measured = pack(heldout.examples, context, encoder.pad)
    before = answers(module, measured, draft.placement.device)
    samples = max(1, settings.batch_tokens // context)
    steps = max(1, round(settings.tokens / (samples * context)))
    build = partial(program, base, rows, settings, seed)
    flops = flops_per_token(network.config)
    job = tuning_job(
        build,
        steps,
        samples,
        settings,
        seed,
        draft,
        sample_tokens=context,
        flops_per_token=flops,
    )
    weights = launch(job, draft.placement)
    load_trained(module, weights)
    after = answers(module, measured, draft.placement.device)
    draft.metrics |= {"answer_loss_before": before.loss, "answer_loss": after.loss}
    draft.metrics |= gain("answer_gain", before, after) | {"rows": float(len(heldout.pairs))}
    draft.metrics |= worth_of_context(module, heldout, encoder, after, draft.placement.device)
    save_model(draft.path, network, base)
    taught = {target for _, targets in train.examples for target in targets}
    if new := taught & encoder.special_ids - encoder.ends:  # its template's marks of a turn's end
        add_ends(draft.path, encoder.ends | new)
    write_json_lines(draft.path / "heldout.jsonl", (pair.record() for pair in heldout.pairs))
    write_history(draft)


def usable_rows(
    settings: InstructSettings, encoder: Encoder, context: int, draft: Draft, made: Sequence[Pair]
) -> tuple[Supervised, Supervised, Supervised]:
    """Training and held-out rows, and those of early stopping; ledger and facts are in the draft.

    Raises BadInput when either side has no usable row.
    """
    pairs, heldout_pairs, rejected = instruction_pairs(settings, made)
    data = settings.data or "synthesize"
    pairs, apart_pairs = held_apart(pairs, settings.early_stopping)
    train = supervise(pairs, encoder, context)
    heldout = supervise(heldout_pairs, encoder, context)
    apart = supervise(apart_pairs, encoder, context)
    account(draft, (train, heldout, apart), rejected)
    check_supervised(data, train, encoder)
    check_supervised(settings.heldout or data, heldout, encoder)
    if settings.early_stopping:
        check_supervised(f"{data} (early_stopping)", apart, encoder)
    draft.facts["task"] = describe(settings)
    draft.facts["supervised_example"] = show_example(encoder, train.examples[0])
    log.info("one supervised row: %s", draft.facts["supervised_example"])
    return train, heldout, apart


def supervise(pairs: Iterable[Pair], encoder: Encoder, context: int) -> Supervised:
    """Tokens of every pair that has an answer and whose prompt leaves room for it.

    An answer that does not fit whole is cut, and then does not end with the end of document.
    """
    kept: list[Pair] = []
    examples: list[Example] = []
    rejects: list[dict[str, Any]] = []
    cut = 0
    for pair in pairs:
        inputs, targets = supervised(encoder, pair.messages)
        prompt = _first(targets) + 1
        if not pair.response.strip():
            rejects.append({"row": pair.number, "id": pair.id, "reason": "no_answer"})
        elif prompt > context:
            rejects.append({"row": pair.number, "id": pair.id, "reason": "prompt_too_long"})
        else:
            kept.append(pair)
            examples.append((inputs[:context], targets[:context]))
            cut += len(inputs) > context
    return Supervised(kept, examples, cut, rejects)


def check_supervised(data: str, rows: Supervised, encoder: Encoder) -> None:
    """Raise BadInput, before anything trains, when no row is usable, when of one nothing that is
    answered has a target, or all that is asked, or when no answer keeps the end of its turn.
    """
    if not rows.pairs:
        reasons = dict(Counter(reject["reason"] for reject in rows.rejects))
        raise BadInput(f"'{data}' has no usable row: {reasons or 'no rows at all'}")
    marks = encoder.special_ids | {NO_LOSS}
    for pair, (_, targets) in zip(rows.pairs, rows.examples, strict=True):
        fault = "" if NO_LOSS in targets else "nothing is masked, what is asked would be taught"
        if marks.issuperset(targets):
            fault = "every target is masked, nothing that is answered would be taught"
        if fault:
            raise BadInput(
                f"'{data}', line {pair.number} ({pair.id}): {fault}; look at the model's chat "
                "template, and at what `headrace adapt --show-targets` prints"
            )
    if not any(encoder.special_ids.intersection(targets) for _, targets in rows.examples):
        raise BadInput(
            f"'{data}': every answer is cut before the end of its turn, so that the tuned model "
            "would never stop; give shorter rows, or take a model with a longer context"
        )


def show_example(encoder: Encoder, example: Example) -> dict[str, str]:
    """What the model reads and what it is to answer, decoded with the special tokens shown."""
    inputs, targets = example
    prompt = _first(targets) + 1
    return {
        "prompt": encoder.decode(inputs[:prompt], specials=True),
        "answer": encoder.decode([t for t in targets if t != NO_LOSS], specials=True),
    }


def _first(targets: Sequence[int]) -> int:
    """The place of the first token that is taught; 0 where none is, which is refused later."""
    return next((place for place, target in enumerate(targets) if target != NO_LOSS), 0)


def account(draft: Draft, sides: Sequence[Supervised], rejected: Counter[str]) -> None:
    """Ledger, rows and facts of the draft, and `rejects.jsonl`."""
    reasons = rejected + Counter(r["reason"] for side in sides for r in side.rejects)
    keep_ledger(draft, sum(len(side.pairs) for side in sides), reasons)
    draft.facts |= {
        "training_rows": len(sides[0].pairs),
        "answers_cut": sum(side.cut for side in sides),
    }
    write_json_lines(draft.path / "rejects.jsonl", (r for side in sides for r in side.rejects))


def program(base: Path, rows: Path, settings: InstructSettings, seed: int) -> Program:
    """What every training process runs: the pretrained network, and packed supervised rows."""
    arrays, apart = (load_file(here(rows / name)) for name in (ROWS, VALIDATION))

    def batch(first: int, count: int) -> dict[str, np.ndarray]:
        numbers = sample_numbers(first, count, len(arrays["inputs"]), seed)
        return {key: array[numbers] for key, array in arrays.items()}

    module = trained_part(CausalLM(hub.load(brought(base))), settings, base)
    return Program(module, batch, list(batches(apart)))


def worth_of_context(
    module: CausalLM, heldout: Supervised, encoder: Encoder, told: Answers, device: str
) -> dict[str, float]:
    """Loss of the answers to rows that ask about something, with it (`told`) and without it, and
    what it is worth; nothing where no row does. Rows whose answer is cut beside it do not count.
    """
    context = module.network.config.context
    bare = {n: pair.bare for n, pair in enumerate(heldout.pairs) if pair.bare}
    asked = {n: supervise([pair], encoder, context).examples for n, pair in bare.items()}
    kept = [n for n, (example,) in asked.items() if _taught(example) == told.tokens[n]]
    if not kept:
        return {}
    rows = pack([asked[n][0] for n in kept], context, encoder.pad)
    without, with_it = answers(module, rows, device), told.at(kept)
    return {
        "answer_loss_with_context": with_it.loss,
        "answer_loss_without_context": without.loss,
        **gain("context_gain", without, with_it),
        "context_rows": float(len(kept)),
    }


def _taught(example: Example) -> int:
    return sum(target != NO_LOSS for target in example[1])
