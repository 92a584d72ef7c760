"""Stages `translate` and `summarise`: what is learned, how rows are laid out, what is measured."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.placement import Placement
from cluster.stage import build
from cluster.store import Store
from tasks.inference.generation import GenerationSettings, generate_text
from tasks.tokens.chat import NO_LOSS
from tasks.tokens.encoder import Encoder
from tasks.training.settings import OptimizerSettings
from tasks.tuning.text_to_text.measures import first_sentences
from tasks.tuning.text_to_text.rows import (
    Layout,
    TextPair,
    batch_of,
    buckets,
    encode,
    laid,
    parts_of,
    rows_of,
)
from tasks.tuning.text_to_text.settings import PairsSettings, TextToTextSettings
from tasks.tuning.text_to_text.stage import summarise, translate
from tests.tuning.test_classify import write

WORDS = {"red": "rot", "blue": "blau", "one": "eins", "two": "zwei", "cat": "Katze"}


def pair(number: int) -> dict[str, str]:
    words = random.Random(number).choices(list(WORDS), k=2 + number % 2)
    return {"id": f"r{number}", "en": " ".join(words), "de": " ".join(WORDS[w] for w in words)}


PAIRS = [pair(i) for i in range(150)]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("pairs") / "pairs.jsonl", PAIRS)


def settings(data: str, **changes: Any) -> TextToTextSettings:
    how: dict[str, Any] = {
        "data": data,
        "source": "en",
        "target": "de",
        "heldout_share": 0.1,
        "epochs": 30,
        "batch_tokens": 512,
        "length": 24,
        "num_beams": 2,
        "label_smoothing": 0.05,
        "optimizer": OptimizerSettings(learning_rate=5e-3, schedule="cosine", weight_decay=0.0),
    }
    return TextToTextSettings(**(how | changes))


@pytest.mark.parametrize("family", ["encoder_decoder", "decoder"])
def test_words_are_translated_in_their_order(
    base: Artifact, fresh: Artifact, tuning_store: Store, data: str, family: str
) -> None:
    model = fresh if family == "encoder_decoder" else base
    asked = settings(data, epochs=50)
    tuned = build(translate, tuning_store, model=model, settings=asked, seed=0)
    metrics = tuned.manifest.metrics
    assert metrics["chrf"] > 50 > metrics["chrf_copy"]
    lines = tuned.file("predictions.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert rows[0].keys() == {"id", "input", "prediction", "references"}
    assert len(rows) == metrics["rows"]
    if family == "encoder_decoder":
        asked = GenerationSettings(decoding="beam", num_beams=2, length_penalty=1.0, max_tokens=24)
        said = generate_text(tuned.path, rows[0]["input"], asked)
        assert said["text"].strip() == rows[0]["prediction"]


def test_an_encoder_cannot_write(encoder_base: Artifact, tmp_path: Path, data: str) -> None:
    with pytest.raises(BadInput, match="is an encoder; texts are written by a decoder"):
        build(translate, Store(tmp_path), model=encoder_base, settings=settings(data), seed=0)


def layout(encoder: Encoder, family: Any, **changes: Any) -> Layout:
    how: dict[str, Any] = {"length": 24, "suffix": "", "start": [encoder.pad]}
    return Layout(encoder, family, **(how | changes))


ROW = TextPair("1", "de: red cat", "red cat", ("rot Katze", "die rote Katze"))


def test_a_decoder_is_taught_the_target_alone_behind_the_source(encoder: Encoder) -> None:
    (inputs, read, targets), second = encode([ROW], layout(encoder, "decoder", suffix="\n"))
    assert not read
    taught = [target for target in targets if target != NO_LOSS]
    assert encoder.decode(inputs) == "de: red cat\nrot Katze"
    assert taught == [*encoder.encode("rot Katze"), encoder.eod]
    assert (
        targets.index(taught[0])
        == len(encoder.encode("de: red cat")) + len(encoder.encode("\n")) - 1
    )
    assert encoder.decode(second[0]).endswith("die rote Katze")


def test_an_encoder_decoder_reads_one_and_writes_the_other(encoder: Encoder) -> None:
    inputs, read, targets = encode([ROW], layout(encoder, "encoder_decoder"))[0]
    assert encoder.decode(inputs) == "de: red cat"
    assert targets == [*encoder.encode("rot Katze"), encoder.eod]
    assert read == [encoder.pad, *targets[:-1]]


def test_long_texts_are_cut_with_their_end_kept(encoder: Encoder) -> None:
    long = TextPair("1", "red " * 40, "red " * 40, ("rot " * 40,))
    for family in ("encoder_decoder", "decoder"):
        inputs, _, targets = encode([long], layout(encoder, family, suffix="\n"))[0]
        assert targets[-1] == encoder.eod
        assert sum(target != NO_LOSS for target in targets) == 24
        assert len(inputs) == (24 if family == "encoder_decoder" else 47)


def test_batches_hold_rows_of_like_length_and_all_of_them(encoder: Encoder) -> None:
    rows = [TextPair(str(i), "red " * (1 + i % 17), "", ("rot " * (1 + i % 5),)) for i in range(83)]
    arrays = laid(encode(rows, layout(encoder, "encoder_decoder")), encoder.pad)
    found = buckets(arrays, 128)
    assert sorted(np.concatenate(found)) == list(range(83))
    padded, real, shapes = 0, 0, set()
    for numbers in found:
        batch = batch_of(arrays, parts_of(numbers), encoder.pad)
        size = batch["inputs"].shape[2] + batch["targets"].shape[2]
        assert len(numbers) * size <= 128 or len(numbers) == 1
        padded += len(numbers) * size
        real += int((arrays["inputs_length"] + arrays["targets_length"])[numbers].sum())
        shapes.add((batch["inputs"].shape[2], batch["targets"].shape[2]))
        assert (batch["targets"] != NO_LOSS).sum() == arrays["targets_length"][numbers].sum()
    assert real > 0.6 * padded
    allowed = [{8, 16, arrays[name].shape[1]} for name in ("inputs", "targets")]
    assert all(source in allowed[0] and target in allowed[1] for source, target in shapes)


def test_no_source_is_trained_on_and_measured_on_whatever_its_prefix(
    tmp_path: Path, data: str
) -> None:
    heldout = write(tmp_path / "heldout.jsonl", PAIRS[:20])
    also = PairsSettings(data=data, source="en", target="de", prefix="again: ")
    found = rows_of(settings(data, heldout=heldout, also=(also,), prefix="de: "))
    known = {row.source for row in found.heldout}
    assert not known & {row.source for row in found.train}
    assert {row.prompt[:4] for row in found.train} == {"de: ", "agai"}
    assert found.rejects["also_held_out"] >= 20


def test_rows_without_text_are_counted_and_without_the_field_refused(tmp_path: Path) -> None:
    rows = [*PAIRS[:30], {"en": " ", "de": "x"}, {"en": "a", "de": []}]
    found = rows_of(settings(write(tmp_path / "rows.jsonl", rows)))
    assert found.rejects["empty"] == 2
    with pytest.raises(BadInput, match="line 1 has no 'fr'; it has de, en, id"):
        rows_of(settings(write(tmp_path / "rows.jsonl", PAIRS), target="fr"))


def test_a_summary_is_measured_beside_the_first_sentences(
    fresh: Artifact, tmp_path: Path, data: str
) -> None:
    how: dict[str, Any] = {"num_beams": 1, "most_measured": 4, "dropout": 0.1, "train": "lora"}
    asked = settings(data, epochs=1, length=500, **how)
    tuned = build(summarise, Store(tmp_path), model=fresh, settings=asked, seed=0)
    metrics = tuned.manifest.metrics
    assert metrics["rows"] == 4
    assert metrics.keys() >= {"rouge1", "rouge1_lead", "rougeL", "rougeL_lead"}
    assert (tuned.path / "adapter" / "adapter_config.json").is_file()
    assert (
        tuned.read_json("config.json")["model_type"] == fresh.read_json("config.json")["model_type"]
    ), "dropout of the tuning is no part of the model"


def test_first_sentences_are_three() -> None:
    assert first_sentences("One. Two!\nThree? Four.") == "One. Two! Three?"


def test_two_workers_share_every_batch(fresh: Artifact, tmp_path: Path, data: str) -> None:
    """Pieces of a batch, each read by itself, give the losses of the whole."""
    losses = []
    for micro in (None, 64):
        tuned = build(
            translate,
            Store(tmp_path / str(micro)),
            model=fresh,
            settings=settings(data, epochs=2, most_measured=1),
            seed=0,
            placement=Placement(micro_batch_tokens=micro),
        )
        lines = tuned.file("metrics.jsonl").read_text().splitlines()
        losses.append([json.loads(line)["loss"] for line in lines])
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
