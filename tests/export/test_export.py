"""Models handed over: what is written, what its card says, what is refused, and that it is sent."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from cluster.artifact import Artifact
from cluster.manifest import Ledger
from cluster.runs import RunRecord, StageRecord
from cluster.store import Store
from flows.cli import app
from model import hub
from model.head_config import Head
from model.heads import Headed
from model.hub_lora import MATRICES, add_lora, save_adapter
from model.lora import LoraShape, adapted, fold
from model.transformer import Transformer
from tasks.report.model_card import render
from tests.published import published_folder
from tests.report.test_leaderboard import make, sat

ABOUT = {
    "name": "mine", "architecture": "LlamaForCausalLM", "type": "float32", "file": None,
    "params": 1000, "context": 64, "vocab_size": 300, "chat": True, "head": False, "version": "1",
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return published_folder(tmp_path_factory.mktemp("published"))


def export(*arguments: object) -> dict[str, Any]:
    """What the command prints."""
    found = CliRunner().invoke(app, ["export", *map(str, arguments), "--json"])
    value: dict[str, Any] = json.loads(found.stdout)
    return value | ({"error": str(found.exception)} if found.exception else {})


@pytest.mark.parametrize(("type_", "dtype"), [("bf16", torch.bfloat16), ("f16", torch.float16)])
def test_weights_are_written_in_another_type(
    folder: Path, tmp_path: Path, type_: str, dtype: torch.dtype
) -> None:
    done = export(folder, "--to", tmp_path / "out", "--type", type_)
    assert done["type"] == str(dtype).removeprefix("torch.")
    first, written = hub.tensors(folder), hub.tensors(tmp_path / "out")
    assert first.keys() == written.keys()
    assert all(written[name].equal(tensor.to(dtype)) for name, tensor in first.items())
    assert (tmp_path / "out" / "README.md").read_text() == (folder / "README.md").read_text()


def test_a_head_is_handed_over_with_its_network(folder: Path, tmp_path: Path) -> None:
    import transformers

    torch.manual_seed(0)
    module = Headed(Transformer(hub.load_config(folder)), Head("sequence", 3, "last")).eval()
    torch.nn.init.normal_(module.classifier.weight)
    tuned = published_folder(tmp_path / "tuned")
    for file in tuned.glob("model*"):
        file.unlink()
    names = dict(enumerate("abc"))
    hub.save(tuned, module, {"pad_token_id": 0, "eos_token_id": 2, "id2label": names})
    done = export(tuned, "--to", tmp_path / "out")
    assert done["architecture"] == "LlamaForSequenceClassification"
    auto = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    assert auto.config.id2label == names
    ids = torch.randint(3, 300, (2, 9))
    with torch.no_grad():
        assert torch.allclose(auto(ids).logits, module.scores(ids), atol=1e-5)
    assert "head of a task" in export(tuned, "--to", tmp_path / "g", "--format", "gguf")["error"]
    assert not (tmp_path / "g").exists()


def test_adapters_are_handed_over_in_the_weights_of_their_base(
    folder: Path, tmp_path: Path
) -> None:
    network = hub.load(folder)
    add_lora(network, "llama", LoraShape(rank=2, alpha=4.0), MATRICES)
    with torch.no_grad():
        for _, layer in adapted(network):
            for up in layer.lora_B.values():
                up.weight.normal_(std=0.2)
    save_adapter(tmp_path / "adapter", network, "llama", folder)
    export(tmp_path / "adapter", "--to", tmp_path / "out")
    fold(network)
    found = hub.load(tmp_path / "out").state_dict()
    assert all(torch.allclose(found[k], v, atol=1e-6) for k, v in network.state_dict().items())


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (("--type", "q8_0"), "--type q8_0 is one of GGUF"),
        (("--push", "hf://name"), "is not of the form hf://org/name"),
    ],
)
def test_what_cannot_be_written_is_refused(
    folder: Path, tmp_path: Path, options: tuple[str, ...], match: str
) -> None:
    assert match in export(folder, "--to", tmp_path / "out", *options)["error"]
    assert not list(tmp_path.iterdir())


def test_what_is_there_is_never_written_over(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert "is there already" in export(folder, "--to", tmp_path)["error"]
    assert [file.name for file in tmp_path.iterdir()] == ["notes.txt"]


def test_a_shape_that_transformers_has_not_is_named(folder: Path, tmp_path: Path) -> None:
    own = published_folder(tmp_path / "own")
    for file in own.glob("model*"):
        file.unlink()
    from dataclasses import replace

    hub.save(own, Transformer(replace(hub.load_config(folder), activation="relu2")))
    found = export(own, "--to", tmp_path / "out")["error"]
    assert "model.activation is 'relu2'" in found and not (tmp_path / "out").exists()


def test_it_is_sent_to_the_hub(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Any] = []

    class Api:
        def create_repo(self, name: str, **options: Any) -> str:
            sent.append((name, options))
            return f"https://hub/{name}"

        def upload_folder(self, *, repo_id: str, folder_path: Path) -> None:
            sent.append((repo_id, sorted(file.name for file in folder_path.iterdir())))

    monkeypatch.setattr("huggingface_hub.HfApi", Api)
    done = export(folder, "--to", tmp_path / "out", "--push", "hf://org/mine")
    assert done["url"] == "https://hub/org/mine"
    (made, options), (where, files) = sent
    assert made == where == "org/mine" and options == {"private": True, "exist_ok": True}
    assert {"README.md", "config.json", "model.safetensors", "tokenizer.json"} <= set(files)


def test_a_refusal_of_the_hub_says_what_to_do(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError("401 unauthorized")

    monkeypatch.setattr("huggingface_hub.HfApi.create_repo", refuse)
    found = export(folder, "--to", tmp_path / "out", "--push", "hf://org/mine")["error"]
    assert "401" in found and "hf auth login" in found and (tmp_path / "out").is_dir()


@pytest.fixture
def lineage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Store, Artifact]:
    """Text with licences, searched for an evaluation set, trained on and measured."""
    monkeypatch.setattr("cluster.energy.Reading.joules_since", lambda *_: 2.4e6)
    store = Store(tmp_path)
    source = {
        "label": "books", "rows": 90, "bytes": 4096, "files": 2, "licenses": {"MIT": 80, "CC0": 10}
    }  # fmt: skip
    read = make(store, "read", {}, 0, facts={"sources": [source]})
    searched = make(
        store, "decontaminate", {"text": read.fingerprint}, 0,
        facts={"benchmarks": [{"name": "capitals", "items": 50, "dirty": 3, "too_short": 2}]},
        ledger=Ledger.model_validate({"in": 90, "out": 87, "rejects": {"overlap": 3}}),
    )  # fmt: skip
    work = {"flops": 2.5e12}
    model = make(
        store, "pretrain", {"shards": searched.fingerprint}, 0, tokens=4000, work=work,
        metrics={"params": 1000.0, "train_loss": 2.5, "train_seconds": 9.0},
    )  # fmt: skip
    sat(store, model.name, 0.5, 1)
    return store, model


def test_a_card_tells_what_a_model_was_made_from(lineage: tuple[Store, Artifact]) -> None:
    store, model = lineage
    card = render(ABOUT, model, store)
    assert "| books | 90 | 4.0 KiB | MIT (80 rows), CC0 (10 rows) |" in card
    assert "| 90 | 87 | overlap 3 |" in card and "| capitals | 50 | 3 | 2 |" in card
    assert f"| {model.name} | capitals | accuracy | 0.5 | 0.4 to 0.6 | 50 | 0.25 |" in card
    assert "its own pretrain | training loss of the last steps | 2.5 | unknown |" in card
    assert "| floating-point operations of training, counted | 2.5 T | 1 of 1 |" in card
    assert "| energy | 2 kWh | 3 of 3 |" in card and "| cost | unknown | 0 of 3 |" in card
    assert "AutoModelForCausalLM.from_pretrained" in card and "license" not in card.split("---")[1]
    assert "converses" not in card  # nothing taught it to


def test_a_card_tells_the_cost_where_a_price_was_stated(lineage: tuple[Store, Artifact]) -> None:
    store, model = lineage
    recipe = {"name": "mine", "placement": {"usd_per_hour": 3.0, "workers": 2}}
    stage = StageRecord(
        name="pretrain", stage="pretrain", fingerprint=model.fingerprint, state="built", why="",
        seconds=1800.0,
    )  # fmt: skip
    RunRecord.start(recipe, "all").model_copy(update={"stages": [stage]}).save(store.root)
    assert "| cost | 3.00 USD | 1 of 3 |" in render(ABOUT, model, store)


def test_a_card_of_nothing_known_says_so(tmp_path: Path) -> None:
    card = render(ABOUT | {"file": "mine.gguf"}, None, Store(tmp_path))
    assert "came without a record" in card and "Its text: unknown." in card
    assert "Unknown: nobody looked for it." in card and "None were measured." in card
    assert "converses" in card and "library_name: gguf" in card and "llama-cli -m mine.gguf" in card
