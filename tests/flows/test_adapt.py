"""A run that starts from a model or a tokenizer that exists: as it is, or trained further."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.stage import build
from cluster.store import Store
from flows.adapting import adaptation
from flows.cli import app
from flows.commands.models import show_adapted
from flows.end_to_end import plan
from flows.plan.dag import Dag
from flows.plan.estimate import estimate
from flows.recipe import Recipe
from flows.views.inspection import lineage_of
from flows.views.output import Output
from model import hub
from tasks.evaluation.exams.results import NamedCandidate, take_exam
from tasks.inference.generation import load_model
from tasks.tokens.chat import prompt_ids
from tasks.tokens.encoder import load
from tasks.tuning.classify.settings import ClassifySettings
from tasks.tuning.targets import shown_targets
from tests.published import PADDED, TOKENS, published_folder

STILL = "pretrain.optimizer.learning_rate=1e-9"
SMALL = ("pretrain.tokens=512", "pretrain.context=64", "pretrain.batch_tokens=256", STILL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return published_folder(tmp_path_factory.mktemp("published"))


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text.jsonl"
    said = [
        {"text": f"the wheel of mill {i} turns {i * i} times while water runs"} for i in range(99)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in said))
    return path


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    return Store()


def planned(recipe: Recipe) -> Dag:
    return plan("all", Dag(recipe.name, Store()), recipe)


def carried_out(recipe: Recipe, last: str, goal: str = "all") -> dict[str, Artifact]:
    """Every stage up to `last`, in this process."""
    dag, done = plan(goal, Dag(recipe.name, Store()), recipe), dict[str, Artifact]()

    def made(value: Any) -> Any:
        return [made(one) for one in value] if isinstance(value, list) else done[value.name]

    for node in dag:
        inputs = {key: made(value) for key, value in node.upstream.items()}
        given: dict[str, Any] = {**inputs, **node.given, **node.literals}
        done[node.name] = build(node.function, dag.store, recipe=dag.recipe, **given)
        if node.name == last:
            break
    return done


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return hub.load(folder).state_dict()


def test_a_model_is_the_same_wherever_it_lies_until_a_byte_of_it_changes(
    folder: Path, store: Store, tmp_path: Path
) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"text": "a", "label": "b"}\n')

    def prints(model: Path) -> list[str]:
        dag = planned(adaptation(str(model), "classify", str(rows), None, ()))
        assert [node.name for node in dag] == ["adopt", "classify", "report"]
        return [node.spec.fingerprint for node in dag][:2]

    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    (copy / "notes.txt").write_text("read by nobody")
    assert prints(copy) == prints(folder)
    with (copy / "chat_template.jinja").open("a") as file:
        file.write(" ")
    assert not set(prints(copy)) & set(prints(folder))


def test_training_goes_on_from_the_weights_and_keeps_the_tokenizer(
    folder: Path, text: Path, store: Store
) -> None:
    rows = [{"question": "say the", "choices": ["numbers", "one two"], "answer": 0}]
    (text.parent / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    exam = text.parent / "say.yaml"
    exam.write_text("name: say\nkind: choice\nrows: rows.jsonl\n")
    sat = f"pretrain.exams={{files: [{exam}], every: 1}}"
    recipe = adaptation(str(folder), "pretrain", str(text), None, (*SMALL, sat))
    done = carried_out(recipe, "evaluate")
    model = done["pretrain"]
    scored, _ = take_exam(store, NamedCandidate("it", model), exam)
    points = [p for p in model.manifest.facts["exams"] if p["figure"] == "accuracy"]
    assert [p["step"] for p in points] == [1, 2]
    assert points[-1]["value"] == scored.manifest.metrics["accuracy"]
    before, after = weights(folder), weights(model.path)
    assert all(torch.allclose(before[name], after[name], atol=1e-6) for name in before)
    assert any(not before[name].equal(after[name]) for name in before)
    assert load(model).definition == load(folder).definition and load(model).ends == {2, 3}
    assert (model.path / "chat_template.jinja").is_file()
    assert hub.read_config(model.path)["eos_token_id"] == 2
    nodes = {node["id"]: node for node in lineage_of(model.name)["nodes"]}
    assert nodes[done["adopt"].name]["license"] == "mit" and "text.jsonl" in nodes
    assert done["evaluate"].manifest.metrics["heldout_loss"] > 0


@pytest.mark.parametrize("how", ["yarn", "theta"])
def test_a_longer_context_stretches_the_positions(
    how: str, folder: Path, text: Path, store: Store
) -> None:
    longer = ("pretrain.tokens=512", "pretrain.context=256", "pretrain.batch_tokens=512")
    asked = (*longer, f"model.longer={how}", STILL)
    recipe = adaptation(str(folder), "pretrain", str(text), None, asked)
    first, config = hub.load_config(folder), recipe.model.config(1, 256)
    assert config.context == 256
    assert (config.rope_scaling is not None) == (how == "yarn")
    assert (config.rope_theta > first.rope_theta) == (how == "theta")
    model = carried_out(recipe, "pretrain")["pretrain"]
    assert hub.load_config(model.path) == config


def test_a_table_of_positions_is_not_stretched(tmp_path: Path, text: Path, store: Store) -> None:
    from model.config import ModelConfig
    from model.transformer import Transformer

    sizes = {"width": 16, "depth": 1, "heads": 2, "kv_heads": 2, "head_dim": 8, "ffn_width": 32}
    shape = ModelConfig(vocab_size=300, context=32, positions="learned", **sizes)
    hub.save(published_folder(tmp_path / "m"), Transformer(shape), {"eos_token_id": 2})
    with pytest.raises(BadInput, match="table of 32 positions"):
        adaptation(str(tmp_path / "m"), "pretrain", str(text), None, SMALL)


def test_a_new_model_reads_by_a_tokenizer_that_exists(
    folder: Path, text: Path, store: Store
) -> None:
    training = {"tokens": 512, "context": 64, "batch_tokens": 256}
    said = {"name": "mine", "sources": [str(text)], "tokenizer": {"from": str(folder)}}
    values = {**said, "model": {"depth": 1, "width": 32}, "pretrain": training, "sweep": None}
    recipe = Recipe.model_validate(values)
    assert Recipe.model_validate(recipe.model_dump(mode="json")) == recipe
    model = carried_out(recipe, "pretrain")["pretrain"]
    assert load(model).definition == load(folder).definition and load(model).opening == [1]
    assert hub.load_config(model.path).vocab_size == load(folder).ids == recipe.tokenizer.vocab_size
    assert estimate(recipe)["params"] == model.manifest.metrics["params"]


def test_another_tokenizer_may_stand_in_for_the_models_own(
    folder: Path, text: Path, store: Store, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    small = json.loads((folder / "tokenizer.json").read_text())
    small["model"]["merges"] = small["model"]["merges"][:-1]
    (other / "tokenizer.json").write_text(json.dumps(small))
    shutil.copy(folder / "tokenizer_config.json", other)
    asked = (f"tokenizer.from={other}", *SMALL)
    done = carried_out(adaptation(str(folder), "pretrain", str(text), None, asked), "pretrain")
    assert load(done["pretrain"]).sha256 == load(other).sha256 != load(folder).sha256
    assert hub.load_config(done["pretrain"].path).vocab_size == PADDED


def test_an_artifact_of_this_home_is_no_copy(
    folder: Path, text: Path, store: Store, tmp_path: Path
) -> None:
    recipe = adaptation(str(folder), "pretrain", str(text), None, SMALL)
    model = carried_out(recipe, "pretrain")["pretrain"]
    dag = planned(adaptation("pretrain", "instruct", "python://stdlib", None, ()))
    assert [node.name for node in dag] == ["instruct", "report"]
    assert dag.nodes[0].spec.inputs == {"model": model.fingerprint}
    plan = estimate(adaptation(model.name, "instruct", "python://stdlib", None, ()))
    assert (plan["params"], plan["tokens"]) == (model.manifest.metrics["params"], 0)


def test_adapters_are_merged_into_their_base(folder: Path, store: Store, tmp_path: Path) -> None:
    from model.hub_lora import MATRICES, add_lora, save_adapter
    from model.lora import LoraShape, adapted, fold

    network = hub.load(folder)
    add_lora(network, "llama", LoraShape(rank=2, alpha=4.0), MATRICES)
    with torch.no_grad():
        for _, layer in adapted(network):
            for up in layer.lora_B.values():
                up.weight.normal_(std=0.2)
    save_adapter(tmp_path / "adapter", network, "llama", folder)
    recipe = adaptation(str(tmp_path / "adapter"), "instruct", "python://stdlib", None, ())
    found = weights(carried_out(recipe, "adopt")["adopt"].path)
    fold(network)
    assert all(torch.allclose(found[k], v, atol=1e-6) for k, v in network.state_dict().items())
    assert any(not found[name].equal(weight) for name, weight in weights(folder).items())


def test_a_tuning_has_the_shares_of_the_rate_that_the_model_was_pretrained_at(
    folder: Path, text: Path, store: Store, tmp_path: Path
) -> None:
    """Through a tuning of a tuning and a copy elsewhere; what a recipe says goes before it."""
    scales = {"embeddings": 15, "vectors": 2.5}
    training = {"tokens": 512, "context": 64, "batch_tokens": 256}
    values = {
        "name": "mine",
        "sources": [str(text)],
        "tokenizer": {"vocab_size": 300},
        "model": {"depth": 1, "width": 32},
        "pretrain": training | {"optimizer": {"scales": scales, "base_width": 16}},
        "sweep": None,
    }
    carried_out(Recipe.model_validate(values), "pretrain")
    rows = [{"text": f"say {['one', 'two'][i % 2]} {i}", "label": str(i % 2)} for i in range(20)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def rates(model: str, *asked: str) -> tuple[dict[str, float], str]:
        rows = str(tmp_path / "rows.jsonl")
        tuned = carried_out(adaptation(model, "classify", rows, None, asked), "classify")
        made = tuned["classify"]
        first = json.loads(made.file("metrics.jsonl").read_text().splitlines()[0])
        found = {k.partition("/")[2]: v / first["lr"] for k, v in first.items() if "lr/" in k}
        return found, made.name

    own = {"matrices": 0.5, "head": 0.5, **scales}
    found, tuned = rates("pretrain")
    assert found == pytest.approx(own)
    copy = str(shutil.copytree(store.get(tuned).path, tmp_path / "copy"))
    Path(copy, "artifact.json").unlink()
    for model, asked in ((tuned, "classify.epochs=1"), (copy, "classify.epochs=1")):
        assert rates(model, asked)[0] == pytest.approx(own)
    found, _ = rates("pretrain", "classify.optimizer.scales.embeddings=1")
    assert found == pytest.approx(own | {"embeddings": 1})
    assert set(rates(str(folder))[0].values()) == {1.0}
    longer = carried_out(adaptation("pretrain", "pretrain", str(text), None, SMALL), "pretrain")
    assert hub.rate_shares(longer["pretrain"].path) == pytest.approx(own)


def test_a_model_of_the_hub_is_fetched_at_its_revision(
    folder: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def snapshot(repository: str, *, revision: str, local_dir: Path, **options: Any) -> None:
        asked.append((repository, revision, options["repo_type"]))
        shutil.copytree(folder, local_dir, dirs_exist_ok=True)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
    recipe = adaptation("hf://org/name@v1", "instruct", "python://stdlib", None, ())
    adopted = carried_out(recipe, "adopt")["adopt"]
    assert set(asked) == {("org/name", "v1", "model")}
    assert adopted.manifest.facts["origin"] == "hf://org/name@v1"
    assert adopted.manifest.facts["tokens"] == load(folder).vocab_size


def test_a_published_model_goes_all_the_way_and_transformers_loads_what_comes_out(
    text: Path, store: Store, tmp_path: Path
) -> None:
    """Trained further, instructed, preferred, asked, examined, handed over."""
    import transformers

    rows = [{"prompt": f"say {i}", "chosen": "one two", "rejected": "three"} for i in range(12)]
    (tmp_path / "prefer.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    chats = [{"instruction": row["prompt"], "response": "one two"} for row in rows]
    (tmp_path / "chats.jsonl").write_text("".join(json.dumps(row) + "\n" for row in chats))
    values = {
        "name": "all-the-way",
        "model": {"from": str(published_folder(tmp_path / "published", torch.bfloat16))},
        "sources": [str(text)],
        "pretrain": {"tokens": 512, "context": 64, "batch_tokens": 256},
        "instruct": {"data": str(tmp_path / "chats.jsonl"), "tokens": 512, "batch_tokens": 256},
        "prefer": {"data": str(tmp_path / "prefer.jsonl"), "batch_rows": 4},
    }
    model = carried_out(Recipe.model_validate(values), "prefer")["prefer"]
    said = told("generate", model.name, "--prompt", "say 1", "--chat", "--max-tokens", "4")
    assert max(said["tokens"], default=0) < TOKENS
    (tmp_path / "rows.jsonl").write_text('{"question": "say", "choices": ["a", "b"], "answer": 0}')
    exam = tmp_path / "mine.yaml"
    exam.write_text("name: mine\nkind: choice\nrows: rows.jsonl\nprompt: '{{question}}'\n")
    assert told("exam", model.name, str(exam))["results"]["accuracy"]["n"] == 1

    out = tmp_path / "out"
    assert told("export", model.name, "--to", str(out))["architecture"] == "LlamaForCausalLM"
    network, encoder = load_model(model.path)
    ids = prompt_ids(encoder, [{"role": "user", "content": "say </s> 1"}])
    theirs = transformers.AutoModelForCausalLM.from_pretrained(out)
    with torch.no_grad():
        logits = network.logits(network(torch.tensor([ids])))
        assert torch.allclose(theirs(torch.tensor([ids])).logits, logits, atol=1e-5)
    assert theirs.generation_config.eos_token_id == [2, 3]
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    talk = [{"role": "user", "content": "say 1"}]
    shown = tokenizer.apply_chat_template(talk, add_generation_prompt=True, return_dict=False)
    assert shown == prompt_ids(encoder, talk)
    card = (out / "README.md").read_text()
    assert "licence is mit" in card and "text.jsonl" in card and "| mine | accuracy |" in card
    assert all(f"| {stage}/all-the-way" in card for stage in ("pretrain", "instruct", "prefer"))


def told(*command: str) -> dict[str, Any]:
    """What a command prints as JSON."""
    found = CliRunner().invoke(app, [*command, "--json"])
    assert found.exit_code == 0, found.output
    value: dict[str, Any] = json.loads(found.stdout)
    return value


def test_figures_are_told_with_their_intervals_and_the_folder_last(
    capsys: pytest.CaptureFixture[str],
) -> None:
    figures = {"f1": 0.9123, "f1_low": 0.9, "f1_high": 0.92, "rows": 2012.0}
    show_adapted(Output(False), {"artifact": "/models/tagger", "metrics": figures})
    told = [line.split() for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert told == [["metrics"], ["f1", ".912", "[.900,", ".920]"], ["rows", "2,012"],
                    ["model", "/models/tagger"]]  # fmt: skip


def test_several_seeds_give_a_mean_and_a_range(folder: Path, store: Store, tmp_path: Path) -> None:
    rows = [{"text": f"say {['one', 'two'][i % 2]} {i}", "label": str(i % 2)} for i in range(60)]
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    recipe = adaptation(str(folder), "classify", str(data), None, ("classify.epochs=0.5",), 3)
    dag = plan("sweep", Dag(recipe.name, store), recipe)
    names = [f"classify/baseline,seed={seed}" for seed in range(3)]
    assert [node.name for node in dag] == ["adopt", *names, "compare", "report"]
    done = carried_out(recipe, "compare", "sweep")
    figures = [done[name].manifest.metrics["accuracy"] for name in names]
    facts = done["compare"].manifest.facts
    assert facts["metric"] == "accuracy" and facts["higher_is_better"]
    (variant,) = facts["variants"]
    spread = {"mean": pytest.approx(sum(figures) / 3), "low": min(figures), "high": max(figures)}
    assert variant["n"] == 3 and variant["ranges"]["accuracy"] == spread


@pytest.mark.parametrize(
    ("values", "match"),
    [
        ({"pretrain": None}, "pretrain: null is for a model that exists"),
        ({"sources": []}, "'sources' is missing"),
        ({"model": {"from": "nowhere"}}, "from: nowhere is no folder"),
        ({"model": {"from": "FOLDER", "depth": 2}}, "leave out depth"),
        ({"model": {"from": "FOLDER", "family": "encoder"}}, "is an decoder"),
        ({"tokenizer": {"from": "FOLDER", "kind": "unigram"}}, "leave out kind"),
    ],
)
def test_what_contradicts_a_start_is_refused(
    values: dict[str, Any], match: str, folder: Path, store: Store
) -> None:
    plain = json.loads(json.dumps(values).replace("FOLDER", str(folder)))
    with pytest.raises(ValueError, match=match):
        planned(Recipe.model_validate({"name": "mine", "sources": ["python://stdlib"], **plain}))


@pytest.mark.parametrize(
    ("task", "teacher", "match"),
    [
        ("clasify", None, "classify"),
        ("classify", "smoke", "has none"),
        ("distill", None, "name a `teacher`, or how many `layers`"),
    ],
)
def test_a_task_that_there_is_not_is_refused(
    task: str, teacher: str | None, match: str, folder: Path
) -> None:
    with pytest.raises(BadInput, match=match):
        adaptation(str(folder), task, "rows.jsonl", teacher, ())


@pytest.mark.parametrize(
    ("task", "row", "taught"),
    [
        (
            "instruct",
            {"messages": [{"role": r, "content": r} for r in ("system", "user", "assistant")]},
            "<s>[system] system</s>\n[user] user</s>\n[assistant] ⟦assistant</s>⟧",
        ),
        (
            "prefer",
            {"prompt": "say", "chosen": "yes", "rejected": "no"},
            "<s>[user] say</s>\n[assistant] ⟦yes</s>⟧",
        ),
    ],
)
def test_what_would_be_taught_is_shown_and_nothing_trains(
    folder: Path, tmp_path: Path, store: Store, task: str, row: dict[str, Any], taught: str
) -> None:
    path = tmp_path / "rows.jsonl"
    other = {"prompt": "other", "output": "x", "chosen": "x", "rejected": "y"}
    path.write_text("".join(json.dumps(one) + "\n" for one in (row, other)))
    command = ["adapt", str(folder), "--task", task, "--data", str(path), "--show-targets"]
    share = ["--set", f"{task}.heldout={path.with_name('held.jsonl')}"]
    path.with_name("held.jsonl").write_text(json.dumps(other) + "\n")
    done = CliRunner().invoke(app, [*command, *share, "--json"])
    shown = [text.replace(" ", "") for text in json.loads(done.stdout)["targets"]]
    assert taught.replace(" ", "") in shown, done.output
    assert not list(store.artifacts())


def test_a_task_that_teaches_no_tokens_says_so(folder: Path, tmp_path: Path, store: Store) -> None:
    settings = ClassifySettings(data="rows.jsonl")
    with pytest.raises(BadInput, match="this task teaches no tokens; instruct and prefer do"):
        shown_targets(folder, settings)
