"""Stage `instruct`: what is supervised, what is set aside, and a tiny tuning end to end."""

import json
from pathlib import Path
from typing import Any

import pytest

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.stage import build, stage
from cluster.store import Draft, Store
from tasks.inference.generation import GenerationSettings, generate_text, load_model
from tasks.tokens.encoder import Encoder, load
from tasks.training.settings import OptimizerSettings
from tasks.tuning.instruct.engine import check_supervised, show_example, supervise
from tasks.tuning.instruct.settings import InstructSettings
from tasks.tuning.instruct.stage import instruct
from tasks.tuning.rows import Pair

COLOURS = ["red", "green", "blue", "black", "white"]
ROWS = [
    {"instruction": f"Colour of {thing} {i}?", "response": COLOURS[i % 5]}
    for thing in ("cat", "dog")
    for i in range(20)
]


def pair(instruction: str, response: str, number: int = 1) -> Pair:
    return Pair(str(number), instruction, response, "", str(number), number)


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def lines(artifact: Artifact, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in artifact.file(name).read_text().splitlines()]


def settings(data: str, **changes: Any) -> InstructSettings:
    optimizer = OptimizerSettings(learning_rate=1e-2)
    values = {"tokens": 40 * 4 * 64, "batch_tokens": 4 * 64, "heldout_share": 0.2, **changes}
    return InstructSettings(data=data, optimizer=optimizer, **values)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Forty good pairs, one twice, one without answer, one whose prompt exceeds the context."""
    bad = [
        {"instruction": "Nothing?", "response": " "},
        {"instruction": "word " * 200, "response": "long"},
    ]
    return write(tmp_path_factory.mktemp("rows") / "rows.jsonl", [*ROWS, ROWS[0], *bad])


@pytest.fixture(scope="module")
def tuned(base: Artifact, tuning_store: Store, data: str) -> Artifact:
    return build(instruct, tuning_store, model=base, settings=settings(data), seed=0)


def test_every_turn_of_a_conversation_is_taught(
    base: Artifact, tuning_store: Store, encoder: Encoder, tmp_path: Path
) -> None:
    talk = [("user", "Red {}?"), ("assistant", "no"), ("user", "Blue?"), ("assistant", "yes {}")]
    rows = [
        {"messages": [{"role": r, "content": text.format(i)} for r, text in talk]} for i in range(9)
    ]
    path = write(tmp_path / "talks.jsonl", rows)
    made = build(instruct, tuning_store, model=base, settings=settings(path, tokens=256), seed=0)
    assert made.manifest.facts["supervised_example"]["answer"].startswith("no<|endoftext|>yes")
    assert lines(made, "heldout.jsonl")[0]["messages"][1] == {"role": "assistant", "content": "no"}


def test_tuning_lowers_the_loss_of_held_out_answers(tuned: Artifact) -> None:
    metrics = tuned.manifest.metrics
    assert metrics["answer_loss"] < 0.6 * metrics["answer_loss_before"]
    assert "context_gain" not in metrics
    history = [row["loss"] for row in lines(tuned, "metrics.jsonl")]
    assert len(history) == 40
    assert history[-1] < 0.5 * history[0]


def test_what_a_row_asks_about_is_worth_something(
    base: Artifact, tuning_store: Store, tmp_path: Path
) -> None:
    """The answer stands in the context of every other row, and nowhere else."""
    rows = [
        {"instruction": f"Colour {i}?", "context": COLOURS[i % 5], "response": COLOURS[i % 5]}
        for i in range(60)
    ]
    plain = [{"instruction": f"Yes {i}?", "context": "", "response": "yes"} for i in range(20)]
    data = write(tmp_path / "rows.jsonl", rows + plain)
    made = build(instruct, tuning_store, model=base, settings=settings(data), seed=0)
    found = made.manifest.metrics
    assert found["answer_loss_with_context"] < found["answer_loss_without_context"]
    assert 0 < found["context_gain_low"] < found["context_gain"] < found["context_gain_high"]
    assert 0 < found["answer_gain_low"] < found["answer_gain"] < found["answer_gain_high"]
    asked = [row for row in lines(made, "heldout.jsonl") if row["context"]]
    assert found["context_rows"] == len(asked) < found["rows"]


def test_every_row_is_accounted_for(tuned: Artifact) -> None:
    ledger = tuned.manifest.ledger
    assert ledger is not None
    assert (ledger.rows_in, ledger.rows_out) == (43, 40)
    assert ledger.rejects == {"no_answer": 1, "prompt_too_long": 1, "repeated_pair": 1}
    assert sorted(lines(tuned, "rejects.jsonl"), key=lambda row: row["row"]) == [
        {"row": 42, "id": "42", "reason": "no_answer"},
        {"row": 43, "id": "43", "reason": "prompt_too_long"},
    ]


def test_held_out_rows_are_whole_and_not_tuned_on(tuned: Artifact) -> None:
    heldout = lines(tuned, "heldout.jsonl")
    assert tuned.manifest.metrics["rows"] == len(heldout)
    assert tuned.manifest.facts["training_rows"] == 40 - len(heldout)
    wanted = {row["instruction"]: row for row in ROWS}
    for row in heldout:
        assert set(row) == {"id", "instruction", "response", "context"}
        assert wanted[row["instruction"]]["response"] == row["response"]


def test_the_supervised_example_is_shown_decoded(tuned: Artifact) -> None:
    shown = tuned.manifest.facts["supervised_example"]
    assert shown["prompt"].startswith("<|user|>Colour of ")
    assert shown["prompt"].endswith("?<|assistant|>")
    assert shown["answer"].removesuffix("<|endoftext|>") in COLOURS


def test_the_folder_answers_and_stops(tuned: Artifact) -> None:
    chat = GenerationSettings(chat=True, max_tokens=24)
    answer = generate_text(tuned.path, "Colour of cat 3?", chat)
    assert answer["text"] in COLOURS
    assert len(answer["tokens"]) < 24


def test_the_same_seed_gives_the_same_bits(
    base: Artifact, tuned: Artifact, tmp_path: Path, data: str
) -> None:
    again = build(instruct, Store(tmp_path), model=base, settings=settings(data), seed=0)
    weights = "model.safetensors"
    assert again.manifest.files[weights] == tuned.manifest.files[weights]
    assert again.manifest.metrics == tuned.manifest.metrics


def test_identity_is_the_rows_not_their_path(
    base: Artifact, tuned: Artifact, tuning_store: Store, tmp_path: Path, data: str
) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    moved = folder / Path(data).name
    moved.write_bytes(Path(data).read_bytes())
    again = build(instruct, tuning_store, model=base, settings=settings(str(moved)), seed=0)
    assert again.fingerprint == tuned.fingerprint


def test_rows_held_out_by_file_are_not_tuned_on(base: Artifact, tmp_path: Path, data: str) -> None:
    heldout = write(tmp_path / "heldout.jsonl", ROWS[:3])
    given = settings(data, heldout=heldout, tokens=64, batch_tokens=64)
    found = build(instruct, Store(tmp_path), model=base, settings=given, seed=0)
    assert {row["instruction"] for row in lines(found, "heldout.jsonl")} == {
        row["instruction"] for row in ROWS[:3]
    }
    assert found.manifest.facts["training_rows"] == 37
    assert found.manifest.ledger is not None
    assert found.manifest.ledger.rejects["also_held_out"] == 3


def test_an_answer_that_does_not_fit_is_cut_without_an_end(encoder: Encoder) -> None:
    found = supervise([pair("Say it.", "word " * 50)], encoder, context=32)
    ((inputs, targets),) = found.examples
    assert len(inputs) == len(targets) == 32
    assert encoder.eod not in targets
    assert found.cut == 1


def test_a_prompt_that_fills_the_context_leaves_one_target(encoder: Encoder) -> None:
    prompt = len(encoder.encode("Say it.")) + 2
    assert supervise([pair("Say it.", "yes")], encoder, context=prompt).examples
    too_long = supervise([pair("Say it.", "yes")], encoder, context=prompt - 1)
    assert [row["reason"] for row in too_long.rejects] == ["prompt_too_long"]


def test_nothing_usable_is_refused_before_training(encoder: Encoder) -> None:
    rows = supervise([pair("Why?", ""), pair("How?", "  ", 2)], encoder, context=32)
    with pytest.raises(BadInput, match=r"'rows.jsonl' has no usable row: {'no_answer': 2}"):
        check_supervised("rows.jsonl", rows, encoder)


ANSWER = "{% for m in messages %}{{ m.content if m.role == 'assistant' }}"
TEMPLATES = {
    "every target is masked": "{% for m in messages %}{{ m.content if m.role == 'user' }}"
    "{{ '<|endoftext|>' if m.role == 'assistant' }}{% endfor %}",
    "nothing is masked": ANSWER + "{{ '<|endoftext|>' if m.role == 'assistant' }}{% endfor %}",
}


@pytest.mark.parametrize("fault", TEMPLATES)
def test_a_template_that_masks_all_or_nothing_is_refused_before_training(
    base: Artifact, tuning_store: Store, data: str, fault: str
) -> None:
    model = build(templated, tuning_store, model=base, template=TEMPLATES[fault])
    with pytest.raises(BadInput, match=rf"line \d+ .*: {fault}"):
        build(instruct, tuning_store, model=model, settings=settings(data), seed=0)


@stage(version=1)
def templated(model: Artifact, template: str, draft: Draft) -> None:
    """The same model with another chat template."""
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (draft.path / name).write_bytes(model.file(name).read_bytes())
    said = {"eos_token": "<|endoftext|>", "pad_token": "<|pad|>", "chat_template": template}
    (draft.path / "tokenizer_config.json").write_text(json.dumps(said))


def test_a_tuned_model_ends_where_its_template_ends_a_turn(
    base: Artifact, tuning_store: Store, data: str
) -> None:
    template = (
        "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|pad|>{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>{% endif %}"
    )
    model = build(templated, tuning_store, model=base, template=template)
    assert load(model).ends == {load(model).eod}
    made = build(instruct, tuning_store, model=model, settings=settings(data), seed=0)
    assert load(made).ends == {load(model).eod, load(model).pad}
    chat = GenerationSettings(chat=True, max_tokens=24)
    assert generate_text(made.path, "Colour of cat 3?", chat)["ended"] == "stop"


def test_answers_that_are_all_cut_before_their_end_are_refused(
    base: Artifact, tuning_store: Store, tmp_path: Path
) -> None:
    rows = [{"prompt": f"Say {i}.", "response": "word " * 90} for i in range(9)]
    path = write(tmp_path / "long.jsonl", rows)
    with pytest.raises(BadInput, match=r"every answer is cut before the end .* never stop"):
        build(instruct, tuning_store, model=base, settings=settings(path), seed=0)


def test_show_example(encoder: Encoder) -> None:
    (example,) = supervise([pair("Why?", "so it is")], encoder, context=32).examples
    assert show_example(encoder, example) == {
        "prompt": "<|user|>Why?<|assistant|>",
        "answer": "so it is<|endoftext|>",
    }


def test_a_tokenizer_of_another_model_is_refused(base: Artifact, tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((base.path / name).read_bytes())
    definition = json.loads((base.path / "tokenizer.json").read_text())
    definition["model"]["vocab"]["extra"] = len(definition["model"]["vocab"])
    (tmp_path / "tokenizer.json").write_text(json.dumps(definition))
    with pytest.raises(BadInput, match="tokenizer has 301 tokens and its model 300"):
        load_model(tmp_path)
