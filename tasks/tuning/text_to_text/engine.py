"""The engine of stages `translate` and `summarise`: training by teacher forcing, texts written by
beam search, and their scores.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from cluster.artifact import Artifact, brought
from cluster.errors import BadInput
from cluster.handover import here, share
from cluster.store import Draft
from model import hub
from model.flops import flops_per_token
from model.generation import Ending, Network, beam_search, generate
from model.objectives.modules import TextToText
from tasks.data.row_files import write_json_lines
from tasks.inference.generation import load_model, start_ids
from tasks.training.job import Program
from tasks.training.launch import launch, load_trained
from tasks.tuning.common import keep_ledger, save_model, track, tuning_job, write_history
from tasks.tuning.sources import describe
from tasks.tuning.supervised import sample_numbers
from tasks.tuning.text_to_text.maps import attention_maps
from tasks.tuning.text_to_text.rows import (
    Arrays,
    Layout,
    Sides,
    TextPair,
    batch_of,
    buckets,
    encode,
    laid,
    parts_of,
    rows_of,
)
from tasks.tuning.text_to_text.settings import SHARES, TextToTextSettings
from tasks.tuning.trained_part import trained_part

TRAINED, APART = "rows.safetensors", "validation.safetensors"
WRITTEN_AT_ONCE = 32
EXAMPLES = 5
Measure = Callable[[Sequence[TextPair], Sequence[str]], dict[str, float]]
"""From rows and what was written for them to figures, the trivial baseline's among them."""
log = logging.getLogger("headrace.text_to_text")


def tune(
    model: Artifact, settings: TextToTextSettings, seed: int, draft: Draft, measure: Measure
) -> None:
    """Carry out a stage."""
    track(draft, settings, seed, model=model)
    base = model.path
    network, encoder = load_model(base)
    family, context = network.config.family, network.config.context
    if family == "encoder":
        raise BadInput(f"{base} is an encoder; texts are written by a decoder")
    sides = rows_of(settings)
    suffix = ("\n" if family == "decoder" else "") if settings.suffix is None else settings.suffix
    # One token is what the decoder begins with.
    length = min(settings.length, (context if family == "encoder_decoder" else context // 2) - 1)
    layout = Layout(encoder, family, length, suffix, start_ids(base, network, encoder))
    rows = share_rows(draft, sides, layout)
    count = len(buckets(load_file(rows / TRAINED), settings.batch_tokens))
    job = tuning_job(
        partial(program, base, rows, settings, encoder.pad, seed),
        max(1, round(settings.epochs * count)),
        SHARES,
        settings,
        seed,
        draft,
        sample_tokens=-(-settings.batch_tokens // SHARES),
        flops_per_token=flops_per_token(network.config, length),
    )
    log.info("%d rows in %d batches, %d steps", len(sides.train), count, job.steps)
    weights = launch(job, draft.placement)
    module = trained_part(TextToText(network), settings, base)
    load_trained(module, weights)
    save_model(draft.path, module, base)
    texts = written(network, sides.heldout, layout, settings, draft)
    draft.metrics |= {**measure(sides.heldout, texts), "rows": float(len(texts))}
    write(draft, sides, texts)
    if maps := attention_maps(network, layout, sides.heldout[:EXAMPLES], texts):
        draft.facts["attention"] = maps
    draft.facts["task"] = describe(settings)


def share_rows(draft: Draft, sides: Sides, layout: Layout) -> Path:
    """Write the rows where every training process finds them; the folder."""
    folder = draft.scratch / "rows"
    folder.mkdir(exist_ok=True)
    for name, rows in ((TRAINED, sides.train), (APART, sides.apart)):
        if rows:
            save_file(laid(encode(rows, layout), layout.encoder.pad), folder / name)
    share(folder)
    return folder


def program(base: Path, rows: Path, settings: TextToTextSettings, pad: int, seed: int) -> Program:
    """What every training process runs: the network, and the pieces of batches of equal length."""
    arrays = load_file(here(rows / TRAINED))
    every = buckets(arrays, settings.batch_tokens)

    def batch(first: int, count: int) -> Arrays:
        steps, pieces = np.divmod(np.arange(first, first + count), SHARES)
        chosen = sample_numbers(int(steps[0]), int(steps[-1] - steps[0]) + 1, len(every), seed)
        parts = [
            every[chosen[step - steps[0]]][piece::SHARES]
            for step, piece in zip(steps, pieces, strict=True)
        ]
        return batch_of(arrays, parts, pad)

    module = TextToText(hub.load(brought(base)), settings.label_smoothing)
    validation = []
    if settings.early_stopping:
        apart = load_file(here(rows / APART))
        pieces = buckets(apart, settings.batch_tokens)
        validation = [batch_of(apart, parts_of(piece), pad) for piece in pieces]
    return Program(trained_part(module, settings, base), batch, validation)


def written(
    network: Network,
    rows: Sequence[TextPair],
    layout: Layout,
    settings: TextToTextSettings,
    draft: Draft,
) -> list[str]:
    """What the network writes for every row."""
    prompts = [layout.prompt(row) for row in rows]
    ending, texts = Ending(layout.length, layout.encoder.ends), []
    at_once = WRITTEN_AT_ONCE if settings.num_beams == 1 else 1
    for first in range(0, len(prompts), at_once):
        asked = prompts[first : first + at_once]
        if settings.num_beams == 1:
            found = generate(network, asked, ending, start_ids=layout.start)
        else:
            how = {"beams": settings.num_beams, "length_penalty": settings.length_penalty}
            found = [beam_search(network, asked[0], ending, **how, start_ids=layout.start)]
        texts += [layout.encoder.decode(one.ids).strip() for one in found]
        draft.progress(len(texts), len(prompts), "texts")
    return texts


def write(draft: Draft, sides: Sides, texts: Sequence[str]) -> None:
    """Predictions, history, the ledger and what the report shows."""
    records = [
        {"id": row.id, "input": row.source, "prediction": text, "references": row.targets}
        for row, text in zip(sides.heldout, texts, strict=True)
    ]
    write_json_lines(draft.path / "predictions.jsonl", records)
    write_history(draft)
    used = len(sides.train) + len(sides.apart) + len(sides.heldout)
    keep_ledger(draft, used, sides.rejects)
    draft.facts |= {"training_rows": len(sides.train), "examples": records[:EXAMPLES]}
