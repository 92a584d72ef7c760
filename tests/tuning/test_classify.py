"""Stage `classify`: batches, the split, and a tiny fine-tuning end to end."""

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
from model.flops import flops_per_token
from model.hub import load_headed
from tasks.inference.generation import load_model
from tasks.tokens.encoder import Encoder
from tasks.tokens.frames import Row
from tasks.training.settings import OptimizerSettings
from tasks.tuning.classify.engine import encode
from tasks.tuning.classify.settings import ClassifySettings
from tasks.tuning.classify.stage import classify
from tasks.tuning.headed import arrays_of, batch_of
from tasks.tuning.rows import Snippet
from tasks.tuning.sources import labelled_rows
from tests.published import published_folder

WORDS = {"sea": ["boat", "wave", "fish", "salt"], "sky": ["bird", "cloud", "star", "wind"]}


def text(label: str, number: int) -> str:
    draw = random.Random(f"{label}{number}")
    return " ".join(draw.choices(WORDS[label], k=4)) + f" {number}"


ROWS = [{"text": text(label, i), "label": label} for label in WORDS for i in range(60)]


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def settings(data: str, **changes: Any) -> ClassifySettings:
    optimizer = OptimizerSettings(learning_rate=1e-2)
    return ClassifySettings(
        data=data, optimizer=optimizer, **{"epochs": 6, "length": 24, "batch_rows": 12, **changes}
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("rows") / "rows.jsonl", [*ROWS, ROWS[0]])


@pytest.fixture(scope="module")
def tuned(base: Artifact, tuning_store: Store, data: str) -> Artifact:
    return build(classify, tuning_store, model=base, settings=settings(data), seed=0)


def test_an_encoder_reads_the_class_off_its_class_token(
    encoder_base: Artifact, tuning_store: Store, data: str
) -> None:
    """With a checkpoint after every step, which holds the moments of all that is trained."""
    tuned = build(
        classify,
        tuning_store,
        model=encoder_base,
        settings=settings(data),
        seed=0,
        placement=Placement(checkpoint_seconds=0.001),
    )
    assert tuned.manifest.metrics["accuracy_low"] > 0.5
    network, encoder = load_model(tuned.path)
    assert network.config.family == "encoder"
    (row,), _ = encode(encoder, network.config, [Snippet("a b", "x", "y")], 8)
    assert row.ids[0] == encoder.special("class")


def test_rows_tell_the_speed_without_the_lm_head_that_is_not_used(tuned: Artifact) -> None:
    config = load_model(tuned.path)[0].config
    whole, used = (flops_per_token(config, 24, lm_head=head) for head in (True, False))
    assert whole - used == 6 * config.vocab_size * config.width
    for line in tuned.file("metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        assert row["flops_per_second"] == pytest.approx(used * row["tokens_per_second"], rel=0.01)
        assert row["mfu"] > 0


def test_it_learns_what_words_tell(tuned: Artifact) -> None:
    metrics, history = tuned.manifest.metrics, tuned.manifest.facts["history"]
    assert metrics["accuracy_majority"] == 0.5
    assert metrics["accuracy_low"] > 0.5
    assert metrics["accuracy"] >= 0.9
    assert metrics["macro_f1"] >= 0.9
    assert history[0]["loss"] == pytest.approx(np.log(2), abs=1e-4)  # a head of zeros
    assert history[-1]["loss"] < 0.5 * history[0]["loss"]


def test_counts_agree(tuned: Artifact) -> None:
    facts, ledger = tuned.manifest.facts, tuned.manifest.ledger
    assert ledger is not None
    assert (ledger.rows_in, ledger.rows_out, ledger.rejects) == (121, 120, {"repeated_text": 1})
    assert facts["labels"] == ["sea", "sky"]
    assert facts["rows_per_class"] == {"sea": 45, "sky": 45}
    assert sum(map(sum, facts["confusion"])) == tuned.manifest.metrics["rows"] == 30
    right = facts["confusion"][0][0] + facts["confusion"][1][1]
    assert right / 30 == tuned.manifest.metrics["accuracy"]


def test_predictions_are_kept_beside_their_rows(tuned: Artifact) -> None:
    rows = [json.loads(line) for line in tuned.file("predictions.jsonl").read_text().splitlines()]
    right = sum(row["label"] == row["prediction"] for row in rows)
    assert right / len(rows) == tuned.manifest.metrics["accuracy"]


def test_the_folder_is_a_model_with_named_classes(tuned: Artifact) -> None:
    network, _ = load_model(tuned.path)
    assert network.config.width == 32
    assert tuned.read_json("config.json")["id2label"] == {"0": "sea", "1": "sky"}


def test_the_same_seed_gives_the_same_bits(
    base: Artifact, tuned: Artifact, tmp_path: Path, data: str
) -> None:
    again = build(classify, Store(tmp_path), model=base, settings=settings(data), seed=0)
    for name in ("model.safetensors", "predictions.jsonl"):
        assert again.manifest.files[name] == tuned.manifest.files[name]


def test_batches_are_as_long_as_their_longest_text_or_the_next_multiple_of_8(
    base: Artifact,
) -> None:
    """A token that fills rows may also stand in a text."""
    config = load_model(base.path)[0].config
    rows = [Row([token] * n, [0] * n, [0]) for token, n in ((5, 3), (8, 1), (1, 5), (9, 11))]
    arrays = arrays_of(rows, config, pad=1)
    batch = batch_of(arrays, np.array([0, 1]))
    assert batch["inputs"].tolist() == [[5] * 3 + [1] * 5, [8] + [1] * 7]
    assert batch["documents"].tolist() == [[1] * 3 + [0] * 5, [1] + [0] * 7]
    assert batch["positions"].tolist() == [list(range(8))] * 2
    assert batch_of(arrays, np.array([2, 3]))["inputs"].shape == (2, 11)


def test_long_texts_are_cut_and_counted(base: Artifact, encoder: Encoder) -> None:
    config = load_model(base.path)[0].config
    rows = [Snippet("boat", "sea", "a"), Snippet("boat " * 40, "sea", "b")]
    (short, long), cut = encode(encoder, config, rows, 8)
    assert cut == 1
    assert short.ids == encoder.encode("boat")
    assert long.ids == encoder.encode("boat " * 40)[:8]


def test_no_file_of_the_embedded_corpus_is_on_both_sides() -> None:
    train, heldout, rejects = labelled_rows(ClassifySettings())
    assert not rejects
    assert not {row.group for row in train} & {row.group for row in heldout}
    assert not {row.text for row in train} & {row.text for row in heldout}
    assert {row.label for row in train} == {row.label for row in heldout}
    assert len({row.label for row in train}) == 4
    assert labelled_rows(ClassifySettings())[1] == heldout


def test_one_class_is_refused(tmp_path: Path) -> None:
    data = write(tmp_path / "rows.jsonl", ROWS[:60])
    with pytest.raises(BadInput, match=r"leaves 45 training rows of 1 class\(es\)"):
        labelled_rows(settings(data))


def test_a_class_only_held_out_rows_have_is_refused(tmp_path: Path, data: str) -> None:
    heldout = write(tmp_path / "heldout.jsonl", [{"text": "a stone", "label": "earth"}])
    with pytest.raises(BadInput, match="classes no training row has: earth"):
        labelled_rows(settings(data, heldout=heldout))


def test_held_out_texts_leave_the_training_rows(tmp_path: Path, data: str) -> None:
    heldout = write(tmp_path / "heldout.jsonl", ROWS[:10])
    train, measured, rejects = labelled_rows(settings(data, heldout=heldout))
    assert (len(train), len(measured)) == (110, 10)
    assert rejects == {"repeated_text": 1, "also_held_out": 10}


def test_data_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rows.txt").write_text("no rows")
    with pytest.raises(BadInput, match=r"is not one \.jsonl, .* file"):
        labelled_rows(settings(str(tmp_path / "rows.txt")))


def test_pairs_are_laid_out_as_in_pretraining(encoder_base: Artifact) -> None:
    """Behind the class token, each with a mark behind it, of segments of their own; the longer text
    is cut.
    """
    network, encoder = load_model(encoder_base.path)
    row = Snippet("boat " * 30, "x", "g", second="wave")
    (laid,), cut = encode(encoder, network.config, [row], 12)
    second = encoder.encode("wave")
    first = encoder.encode(row.text)[: 12 - 3 - len(second)]
    assert cut == 1
    assert laid.ids == [encoder.special("class"), *first, encoder.eod, *second, encoder.eod]
    assert laid.segments == [0] * (len(first) + 2) + [1] * (len(second) + 1)
    arrays = arrays_of([laid], network.config, encoder.pad)
    assert batch_of(arrays, np.array([0]))["segments"].tolist() == [laid.segments]


def test_a_published_tokenizer_says_itself_how_texts_are_laid_out(tmp_path: Path) -> None:
    network, encoder = load_model(published_folder(tmp_path))
    one, two = encoder.encode("one"), encoder.encode("two")
    (single,), _ = encode(encoder, network.config, [Snippet("one", "x", "g")], 32)
    (pair,), _ = encode(encoder, network.config, [Snippet("one", "x", "g", second="two")], 32)
    assert single.ids == [1, *one]
    assert pair.ids == [1, *one, 1, *two]


PAIRS = [
    {"first": text(a, i), "second": text(b, 100 + i), "label": str(a == b)}
    for a in WORDS
    for b in WORDS
    for i in range(40)
]


def test_several_classes_at_once(base: Artifact, tuning_store: Store, tmp_path: Path) -> None:
    """Each with a probability of its own; rows may have all of them or none."""
    both = [
        {"text": f"{text('sea', i)} {text('sky', i)}", "label": ["sea", "sky"]} for i in range(40)
    ]
    single = [{"text": row["text"], "label": [row["label"]]} for row in ROWS]
    none = [{"text": f"nothing at all {i}", "label": []} for i in range(40)]
    data = write(tmp_path / "rows.jsonl", both + single + none)
    asked = settings(data, pooling="mean", epochs=10)
    tuned = build(classify, tuning_store, model=base, settings=asked, seed=0)
    metrics = tuned.manifest.metrics
    assert metrics["micro_f1"] > 0.8 > metrics["micro_f1_majority"]
    assert metrics["macro_f1"] > 0.8
    assert metrics["accuracy"] > metrics["accuracy_majority"]
    assert tuned.read_json("config.json")["problem_type"] == "multi_label_classification"
    row = json.loads(tuned.file("predictions.jsonl").read_text().splitlines()[0])
    assert isinstance(row["label"], list) and isinstance(row["prediction"], list)
    assert load_headed(tuned.path).head.pooling == "mean"


def test_lists_in_some_rows_only_are_refused(tmp_path: Path) -> None:
    rows = [*ROWS, {"text": "all of it", "label": ["sea", "sky"]}]
    with pytest.raises(BadInput, match="some rows have one class in 'label' and some a list"):
        labelled_rows(settings(write(tmp_path / "rows.jsonl", rows)))


def test_a_decoder_has_no_first_token_to_read(base: Artifact, tmp_path: Path, data: str) -> None:
    with pytest.raises(BadInput, match="pooling is first, but the first token of a decoder"):
        build(
            classify, Store(tmp_path), model=base, settings=settings(data, pooling="first"), seed=0
        )


def test_pairs_are_told_apart(encoder_base: Artifact, tuning_store: Store, tmp_path: Path) -> None:
    """And keep their ids; no first text is on both sides."""
    rows = [row | {"id": f"pair {n}"} for n, row in enumerate(PAIRS)]
    data = write(tmp_path / "rows.jsonl", rows)
    asked = settings(data, text="first", second="second", epochs=1)
    train, heldout, _ = labelled_rows(asked)
    assert not {row.text for row in train} & {row.text for row in heldout}
    tuned = build(classify, tuning_store, model=encoder_base, settings=asked, seed=0)
    row = json.loads(tuned.file("predictions.jsonl").read_text().splitlines()[0])
    assert row["second"] and row["id"].startswith("pair ")


def test_transformers_loads_the_classifier(tuned: Artifact) -> None:
    """And classifies the held-out rows as it was measured."""
    import torch
    from transformers import AutoModelForSequenceClassification

    theirs = AutoModelForSequenceClassification.from_pretrained(tuned.path).eval()
    _, encoder = load_model(tuned.path)
    for line in tuned.file("predictions.jsonl").read_text().splitlines()[:5]:
        row = json.loads(line)
        inputs = torch.tensor([encoder.encode(row["text"])[:24]])
        with torch.no_grad():
            found = int(theirs(inputs).logits.argmax())
        assert theirs.config.id2label[found] == row["prediction"]
