"""A folder as published ones are is generated from and spoken to."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from cluster.errors import BadInput
from model import hub
from tasks.inference.generation import GenerationSettings, generate_text, load_model
from tasks.tokens.chat import prompt_ids, supervised
from tasks.tokens.encoder import Encoder, load
from tasks.tokens.roles import Roles
from tests.published import TOKENS, published_folder

TALK = [
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": " say </s> one "},
    {"role": "assistant", "content": "one"},
    {"role": "user", "content": "again"},
    {"role": "assistant", "content": "two"},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return published_folder(tmp_path_factory.mktemp("published"))


@pytest.fixture(scope="module")
def encoder(folder: Path) -> Encoder:
    return load(folder)


@pytest.mark.parametrize("how", ["greedy", "sample", "beam", "mbr"])
def test_ids_that_are_no_tokens_are_never_written(folder: Path, how: str) -> None:
    network, _ = load_model(folder)
    with torch.no_grad():
        best = network.logits(network(torch.tensor([[1, 5]])))[0].argmax(-1)
    assert (best >= TOKENS).all()
    settings = GenerationSettings(decoding=how, max_tokens=5, num_beams=2, samples=2)  # type: ignore[arg-type]
    written = generate_text(folder, "say", settings)
    assert len(written["tokens"]) == 5 or written["ended"] == "stop"
    assert max(written["tokens"], default=0) < TOKENS


def test_its_files_say_what_begins_and_ends_a_text(encoder: Encoder) -> None:
    assert encoder.opening == [1]
    assert (encoder.eod, encoder.pad, encoder.ends) == (2, 2, {2, 3})


def test_it_is_spoken_to_in_its_own_template(encoder: Encoder) -> None:
    ids = prompt_ids(encoder, TALK[:2])
    shown = encoder.decode(ids, specials=True)
    assert shown == "<s>[system] be brief</s>\n[user]  say </s> one </s>\n[assistant] "
    assert ids.count(encoder.eod) == 2, "a mark that is typed is text"


def test_transformers_reads_a_conversation_as_the_same_ids(folder: Path, encoder: Encoder) -> None:
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    talk = [{**turn, "content": turn["content"].replace("</s>", "")} for turn in TALK]
    for turns in (talk[:2], talk[:4]):
        wanted = theirs.apply_chat_template(turns, add_generation_prompt=True, return_dict=False)
        assert prompt_ids(encoder, turns) == wanted
    inputs, _ = supervised(encoder, talk)
    whole = theirs.apply_chat_template(talk, return_dict=False)
    assert whole[: len(inputs)] == inputs


def test_all_turns_of_the_assistant_are_taught_with_their_ends(encoder: Encoder) -> None:
    inputs, targets = supervised(encoder, TALK)
    assert len(inputs) == len(targets)
    taught = [target for target in targets if target != -100]
    assert encoder.decode(taught, specials=True).replace(" ", "") == "one</s>two</s>"
    assert all(b in (-100, a) for a, b in zip(inputs[1:], targets, strict=False))


def test_a_template_that_ends_no_turn_is_refused(encoder: Encoder) -> None:
    words = "{% for m in messages %}{{ m.content }}{% endfor %}"
    endless = Encoder(encoder.definition, _with(encoder, words))
    with pytest.raises(BadInput, match="would never stop"):
        supervised(endless, TALK[1:3])


def test_a_template_that_takes_back_what_it_wrote_is_refused(encoder: Encoder) -> None:
    last = "{{ messages[-1].content }}</s>"
    forgetful = Encoder(encoder.definition, _with(encoder, last))
    with pytest.raises(BadInput, match="turn 3 otherwise"):
        supervised(forgetful, TALK)


def test_a_model_without_a_template_says_so(encoder: Encoder) -> None:
    with pytest.raises(BadInput, match="no chat template"):
        prompt_ids(Encoder(encoder.definition, _with(encoder, None)), TALK)


def test_a_template_reaches_nothing_of_the_machine(encoder: Encoder) -> None:
    reaching = "{{ messages.__class__.__mro__ }}{{ cycler.__init__.__globals__ }}"
    with pytest.raises(BadInput, match="does not take this"):
        prompt_ids(Encoder(encoder.definition, _with(encoder, reaching)), TALK)


def test_a_part_that_the_index_names_is_missed_by_name(tmp_path: Path) -> None:
    folder = published_folder(tmp_path / "model")
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(ValueError, match=r"00002-of-00002\.safetensors is not there"):
        hub.load(folder)


def test_weights_of_pytorchs_own_file_are_the_same(folder: Path, tmp_path: Path) -> None:
    network = hub.load(folder)
    pickled = tmp_path / "pickled"
    hub.save(pickled, network)

    torch.save(load_file(pickled / "model.safetensors"), pickled / "pytorch_model.bin")
    (pickled / "model.safetensors").unlink()
    found = hub.load(pickled).state_dict()
    assert all(found[name].equal(weight) for name, weight in network.state_dict().items())
    torch.save({"lm_head.weight": Path}, pickled / "pytorch_model.bin")
    with pytest.raises(ValueError, match="holds more than tensors"):
        hub.load(pickled)


def _with(encoder: Encoder, template: str | None) -> Roles:

    return replace(encoder.roles, template=template)
