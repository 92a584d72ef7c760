"""Stages `preferences` and `prefer`: rows in every form, and a tiny tuning by each loss."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from safetensors.numpy import load_file

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.placement import Placement
from cluster.stage import build, stage
from cluster.store import Draft, Store
from tasks.evaluation.answers import AnswerSettings, answers
from tasks.tokens.encoder import Encoder
from tasks.training.settings import OptimizerSettings
from tasks.tuning.prefer.encode import encode
from tasks.tuning.prefer.engine import batch, count_rows, couples
from tasks.tuning.prefer.rows import Preference, preference_rows, read_preferences
from tasks.tuning.prefer.settings import PreferSettings
from tasks.tuning.prefer.stage import prefer, preferences
from tests.published import TEMPLATE, published_folder

THINGS = ("cat", "dog", "cow", "hen")
PAIRS = [
    {"prompt": f"{thing} {i}?", "chosen": "yes it is", "rejected": "no never"}
    for thing in THINGS
    for i in range(15)
]
SINGLES = [
    {"prompt": row["prompt"], "completion": row[name], "label": name == "chosen"}
    for row in PAIRS
    for name in ("chosen", "rejected")
]


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def lines(artifact: Artifact, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in artifact.file(name).read_text().splitlines()]


def settings(data: str, **changes: Any) -> PreferSettings:
    own = {"optimizer": OptimizerSettings(learning_rate=3e-3), "epochs": 4, "heldout_share": 0.2}
    return PreferSettings(data=data, **{**own, **changes})


def known(store: Store, model: Artifact, asked: PreferSettings) -> Artifact:
    return build(
        preferences,
        store,
        model=model,
        settings=asked.rows(),
        reference=asked.has_reference,
        single=asked.loss == "kto",
    )


def tuned(store: Store, model: Artifact, asked: PreferSettings, **more: Any) -> Artifact:
    rows = known(store, model, asked)
    return build(prefer, store, model=model, preferences=rows, settings=asked, seed=0, **more)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Sixty good pairs, one twice, and some that teach nothing."""
    bad = [
        {"prompt": "Same?", "chosen": "yes", "rejected": "yes"},
        {"prompt": "None?", "chosen": "yes", "rejected": " "},
        {"prompt": "word " * 200, "chosen": "yes", "rejected": "no"},
    ]
    return write(tmp_path_factory.mktemp("rows") / "rows.jsonl", [*PAIRS, PAIRS[0], *bad])


@pytest.mark.parametrize("loss", ["dpo", "ipo", "kto", "orpo"])
def test_held_out_pairs_are_put_in_order(
    base: Artifact, tuning_store: Store, data: str, loss: str
) -> None:
    made = tuned(tuning_store, base, settings(data, loss=loss))
    metrics = made.manifest.metrics
    assert metrics["reward_accuracy"] == 1.0 >= metrics["reward_accuracy_low"] > 0.6
    assert metrics["reward_margin"] > 0
    history = lines(made, "metrics.jsonl")
    assert history[-1]["reward_accuracy"] > 0.9
    assert history[-1]["reward_margin"] > history[0]["reward_margin"]
    assert "reward_margin" in made.manifest.facts["history"][0]
    rewards = lines(made, "rewards.jsonl")
    best = {row["row"]: row["reward"] for row in rewards if row["wanted"]}
    assert all(best[row["row"]] > row["reward"] for row in rewards if not row["wanted"])


@pytest.mark.parametrize("loss", ["dpo", "kto", "orpo"])
def test_it_ends_when_the_loss_on_rows_held_apart_is_lowest(
    base: Artifact, tuning_store: Store, data: str, loss: str
) -> None:
    stop = {"share": 0.2, "looks": 50, "patience": 1}
    # At such a rate what is learned at one look is lost at another.
    hot = OptimizerSettings(learning_rate=0.1)
    asked = settings(data, loss=loss, early_stopping=stop, epochs=50, optimizer=hot)
    made = tuned(tuning_store, base, asked)
    facts, history = made.manifest.facts, lines(made, "metrics.jsonl")
    looks = {row["step"]: row["validation_loss"] for row in history if "validation_loss" in row}
    assert len(history) == facts["steps_trained"] < 50 * 3
    assert made.manifest.metrics["validation_loss"] == min(looks.values())
    assert looks[facts["best_step"]] == min(looks.values())
    kept = known(tuning_store, base, asked).manifest.facts["training_rows"]
    assert made.manifest.rows == kept - round(0.2 * kept)


def test_every_row_is_accounted_for(base: Artifact, tuning_store: Store, data: str) -> None:
    made = known(tuning_store, base, settings(data))
    ledger = made.manifest.ledger
    assert ledger is not None
    assert (ledger.rows_in, ledger.rows_out) == (64, 60)
    assert ledger.rejects == {
        "repeated_row": 1, "same_answers": 1, "no_answer": 1, "prompt_too_long": 1
    }  # fmt: skip
    assert {row["row"] for row in lines(made, "rejects.jsonl")} == {62, 63, 64}
    assert made.manifest.facts["supervised_example"][0].endswith(
        "?<|assistant|>⟦yes it is<|endoftext|>⟧"
    )


def test_another_beta_takes_the_same_preferences(
    base: Artifact, tuning_store: Store, data: str
) -> None:
    first, other = settings(data), settings(data, beta=0.7, loss="ipo", epochs=1)
    assert known(tuning_store, base, first) == known(tuning_store, base, other)
    assert "log_probs" not in load_file(
        known(tuning_store, base, settings(data, loss="orpo")).file("train.safetensors")
    )


@pytest.mark.parametrize("loss", ["kto", "orpo", "dpo"])
def test_weights_do_not_depend_on_micro_batches(
    base: Artifact, tmp_path: Path, data: str, loss: str
) -> None:
    asked = settings(data, loss=loss, epochs=1, train="last")
    made = [
        load_file(tuned(Store(tmp_path / str(size)), base, asked, placement=where).file(WEIGHTS))
        for size, where in ((1, Placement()), (2, Placement(micro_batch_tokens=128)))
    ]
    for name, weights in made[0].items():
        assert np.allclose(weights, made[1][name], atol=2e-5), name
    before = load_file(base.file(WEIGHTS))
    moved = {name for name, weights in made[0].items() if not np.array_equal(weights, before[name])}
    assert moved and not any(name.startswith("model.layers.0") for name in moved)


WEIGHTS = "model.safetensors"


def test_the_preferred_model_answers_what_was_held_out(
    base: Artifact, tuning_store: Store, data: str
) -> None:
    made = tuned(tuning_store, base, settings(data, loss="orpo", beta=1.0, epochs=8))
    replies = build(
        answers, tuning_store, instruct=made, settings=AnswerSettings(rows=4, samples=0), seed=0
    )
    for row in lines(replies, "answers.jsonl"):
        assert (row["prediction"], row["reference"]) == ("yes it is", "yes it is")


@stage(version=1)
def published_model(draft: Draft) -> None:
    """A folder as published ones are."""
    published_folder(draft.path)


def test_a_published_folder_learns_in_its_own_template(tmp_path: Path, data: str) -> None:
    store = Store(tmp_path)
    model = build(published_model, store)
    made = tuned(store, model, settings(data, epochs=1))
    shown = known(store, model, settings(data)).manifest.facts["supervised_example"][1]
    assert shown.startswith("<s>[user] ") and shown.endswith("</s>\n[assistant] ⟦no never</s>⟧")
    assert made.file("chat_template.jinja").read_text() == TEMPLATE
    assert made.manifest.metrics["reward_accuracy"] > 0.5


FORMS: dict[str, dict[str, Any]] = {
    "trl": {"prompt": "Hi", "chosen": "yes", "rejected": "no"},
    "alpaca": {"instruction": "Hi", "input": "", "output": "x", "chosen": "yes", "rejected": "no"},
    "messages": {
        "prompt": [{"role": "user", "content": "Hi"}],
        "chosen": [{"role": "assistant", "content": "yes"}],
        "rejected": [{"role": "assistant", "content": "no"}],
    },
    "whole conversations": {
        name: [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": text}]
        for name, text in (("chosen", "yes"), ("rejected", "no"))
    },
    "sharegpt": {
        "conversations": [{"from": "human", "value": "Hi"}],
        "chosen": {"from": "gpt", "value": "yes"},
        "rejected": {"from": "gpt", "value": "no"},
    },
}


@pytest.mark.parametrize("form", FORMS)
def test_pairs_are_read_in_every_form(tmp_path: Path, form: str) -> None:
    (row,) = read_preferences(write(tmp_path / "rows.jsonl", [FORMS[form]]))
    assert row.prompt == (("user", "Hi"),)
    assert row.answers == ((("assistant", "yes"),), (("assistant", "no"),))
    assert row.wanted == (True, False)


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "Hi", "completion": "yes", "label": True},
        {
            "messages": [
                {"role": "user", "content": "Hi"},
                {"role": "assistant", "content": "yes"},
            ],
            "label": 1,
        },
    ],
)
def test_single_answers_are_read_with_their_label(tmp_path: Path, row: dict[str, Any]) -> None:
    (found,) = read_preferences(write(tmp_path / "rows.jsonl", [row]))
    assert (found.prompt, found.wanted) == ((("user", "Hi"),), (True,))
    assert found.answers == ((("assistant", "yes"),),)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"prompt": "Hi", "chosen": "yes"}, "neither `chosen` and `rejected` nor"),
        ({"prompt": "Hi", "completion": "yes", "label": "good"}, "`label` is 'good'"),
        ({"chosen": "yes", "rejected": "no"}, "it takes a prompt"),
        ({"prompt": "Hi", "chosen": [{"role": "user", "content": "x"}], "rejected": "no"}, "answ"),
        ({"prompt": "Hi", "chosen": [{"role": "bot", "content": "x"}], "rejected": "n"}, "'bot'"),
        ({"prompt": "Hi", "chosen": 3, "rejected": "no"}, "`chosen` must be a list of turns"),
    ],
)
def test_a_row_that_is_no_preference_is_named(
    tmp_path: Path, row: dict[str, Any], said: str
) -> None:
    with pytest.raises(BadInput, match=rf"line 2.*{said}"):
        read_preferences(write(tmp_path / "rows.jsonl", [PAIRS[0], row]))


def test_single_answers_are_for_kto(base: Artifact, tuning_store: Store, tmp_path: Path) -> None:
    path = write(tmp_path / "singles.jsonl", SINGLES)
    with pytest.raises(BadInput, match="has one answer and a label, which is for `loss: kto`"):
        preference_rows(settings(path), single=False)
    made = tuned(tuning_store, base, settings(path, loss="kto"))
    assert made.manifest.metrics["reward_accuracy"] > 0.9
    assert "reward_accuracy_low" not in made.manifest.metrics  # couples are not independent


def test_no_prompt_is_on_both_sides(tmp_path: Path) -> None:
    path = write(tmp_path / "singles.jsonl", SINGLES)
    train, heldout, _ = preference_rows(settings(path), single=True)
    assert heldout
    assert not {row.prompt for row in train} & {row.prompt for row in heldout}
    own = write(tmp_path / "own.jsonl", PAIRS[:4])
    train, heldout, rejects = preference_rows(settings(path, heldout=own), single=True)
    assert (len(train), len(heldout), rejects) == (112, 4, {"also_held_out": 8})


def test_only_the_last_answer_is_taught(encoder: Encoder) -> None:
    talk = (("user", "a"), ("assistant", "b"), ("user", "c"))
    row = Preference("1", talk, ((("assistant", "yes"),), (("assistant", "no"),)), (True, False), 1)
    (pair,) = encode([row], encoder, 64).examples
    taught = [encoder.decode([t for t in targets if t != -100]) for _, targets in pair]
    assert taught == ["yes", "no"]


def test_a_sample_of_kto_has_answers_and_mismatched_ones() -> None:
    rows = np.arange(6)
    arrays = {
        "inputs": np.tile(rows[:, None], (2, 3)),
        "answers": np.tile(rows[:, None], (2, 3)),
        "lengths": np.array([1, 2, 3] * 4),
        "wanted": np.array([1, 0] * 3),
        "item": rows,
        "log_probs": np.arange(12, dtype=np.float32),
    }
    asked = settings("x", loss="kto", batch_rows=8)
    found = batch(arrays, np.arange(count_rows(arrays)), asked, 0, 0, 2)
    assert found["inputs"].shape == (2, 16, 3)
    assert (found["reference"][:, 8:] == found["reference"][:, :8] + 6).all()
    assert found["wanted"].tolist() == (found["reference"][:, :8] % 2 == 0).astype(int).tolist()
    assert (found["documents"].sum(-1) == arrays["lengths"][found["inputs"][..., 0]]).all()


def test_single_answers_are_compared_each_with_all() -> None:
    yes, no, paired = couples({"item": np.arange(3), "wanted": np.array([1, 0, 1])})
    assert (yes.tolist(), no.tolist(), paired) == ([0, 2], [1, 1], False)
    yes, no, paired = couples({"item": np.array([0, 0, 1, 1]), "wanted": np.array([1, 0, 1, 0])})
    assert (yes.tolist(), no.tolist(), paired) == ([0, 2], [1, 3], True)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"loss": "kto", "batch_rows": 12}, "a multiple of 8"),
        ({"loss": "dpo", "desirable": 2.0}, "are of kto, the loss is dpo"),
        ({"loss": "ppo"}, "dpo"),
    ],
)
def test_settings_that_do_not_fit_are_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        settings("x", **values)
