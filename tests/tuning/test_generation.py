"""Text from a model folder: every decoding, the same each time; folders that are not models."""

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from cluster.artifact import Artifact
from cluster.errors import BadInput
from model.generation.reader import Reader
from tasks.inference.generation import GenerationSettings, generate_text, load_model, most_typical
from tasks.tokens.encoder import Encoder


def made(base: Artifact, prompt: str = "def f(", **settings: Any) -> dict[str, Any]:
    return generate_text(base.path, prompt, GenerationSettings(max_tokens=8, **settings))


@pytest.mark.parametrize("decoding", ["greedy", "sample", "beam", "mbr"])
def test_text_is_what_the_tokens_spell(base: Artifact, encoder: Encoder, decoding: str) -> None:
    found = made(base, decoding=decoding, seed=3)
    assert 0 < len(found["tokens"]) <= 8
    assert encoder.eod not in found["tokens"]
    assert found["text"] == encoder.decode(found["tokens"])
    assert found == made(base, decoding=decoding, seed=3)


def test_seeds_differ_and_temperature_zero_is_greedy(base: Artifact) -> None:
    assert made(base, decoding="sample", seed=0) != made(base, decoding="sample", seed=1)
    assert made(base, decoding="sample", temperature=0) == made(base)
    assert made(base, decoding="sample", top_k=1) == made(base)


def test_one_beam_is_greedy(base: Artifact) -> None:
    assert made(base, decoding="beam", num_beams=1)["tokens"] == made(base)["tokens"]


def test_a_stop_text_ends_the_answer_and_is_not_in_it(base: Artifact, encoder: Encoder) -> None:
    free = made(base)["text"]
    stop = free[3:6]
    found = made(base, stop=["never there", stop])
    assert found["text"] == free[: free.index(stop)]
    assert found["text"].startswith(encoder.decode(found["tokens"]))
    assert (found["ended"], made(base)["ended"]) == ("stop", "length")


def test_in_bf16_scores_are_rounded(base: Artifact) -> None:
    whole, rounded = (made(base, precision=kind)["logprobs"][0] for kind in ("fp32", "bf16"))
    assert rounded != whole
    assert rounded == pytest.approx(whole, abs=0.1)


def test_text_comes_in_pieces_and_every_token_has_a_log_probability(base: Artifact) -> None:
    pieces: list[str] = []
    settings = GenerationSettings(max_tokens=8)
    found = generate_text(base.path, "def f(", settings, on_text=pieces.append)
    assert "".join(pieces) == found["text"]
    assert len(pieces) > 2
    assert len(found["logprobs"]) == len(found["tokens"])
    assert all(log_prob < 0 for log_prob in found["logprobs"])


@pytest.mark.parametrize("decoding", ["greedy", "mbr"])
def test_the_likeliest_tokens_of_each_step_are_told_where_asked_for(
    base: Artifact, decoding: str
) -> None:
    found = made(base, decoding=decoding, samples=2, top_logprobs=2)
    assert [len(step) for step in found["top_logprobs"]] == [2] * len(found["tokens"])
    if decoding == "greedy":
        best = [list(step[0]) for step in found["top_logprobs"]]
        assert best == [list(p) for p in zip(found["tokens"], found["logprobs"], strict=True)]
    with pytest.raises(BadInput, match="top_logprobs are of greedy, sample and mbr"):
        made(base, decoding="beam", top_logprobs=2)


def test_decoding_is_compiled_where_asked_for(
    base: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    def noted(network: Any, prompts: Any, room: int, start_ids: Any, compiled: bool) -> Reader:
        asked.append(compiled)
        return Reader(network, prompts, room, start_ids)

    monkeypatch.setattr(import_module("model.generation.stream"), "Reader", noted)
    for decoding in ("greedy", "sample", "mbr"):
        made(base, decoding=decoding, samples=2, compile=True)
    assert asked == [True] * 3


def test_examples_come_before_the_prompt(base: Artifact) -> None:
    settings = GenerationSettings(max_tokens=8)
    shown = generate_text(base.path, "tree", settings, shots=[("sea", "mer")])
    written_out = "Input: sea\nOutput: mer\n\nInput: tree\nOutput:"
    assert shown["tokens"] == made(base, prompt=written_out)["tokens"]


def test_an_empty_prompt_starts_a_document(base: Artifact) -> None:
    assert made(base, prompt="")["tokens"]


def test_the_most_typical_text_is_the_one_most_like_the_others() -> None:
    assert most_typical(["no such thing", "the blue boat", "the blue coat", "the blue boat"]) == 1
    assert most_typical(["same", "same", "other"]) == 0


def test_what_a_folder_lacks_is_named(base: Artifact, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"has no config\.json, tokenizer\.json"):
        load_model(tmp_path)
    (tmp_path / "config.json").write_bytes((base.path / "config.json").read_bytes())
    with pytest.raises(BadInput, match=r"it has no tokenizer\.json"):
        load_model(tmp_path)
    (tmp_path / "tokenizer.json").write_bytes((base.path / "tokenizer.json").read_bytes())
    with pytest.raises(BadInput, match=r"it has no model\.safetensors or pytorch_model\.bin"):
        load_model(tmp_path)


def test_more_tokens_than_the_context_are_refused(base: Artifact) -> None:
    with pytest.raises(BadInput, match="max_tokens is 64; it must be 1 to 63"):
        generate_text(base.path, "x", GenerationSettings(max_tokens=64))
    written = generate_text(base.path, "x", GenerationSettings())
    assert written["ended"] == "stop" or len(written["tokens"]) == 63
