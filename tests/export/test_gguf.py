"""GGUF files, read back by the package that the format comes with."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from cluster.errors import BadInput
from model import hub
from model.config import ModelConfig
from model.config_records import RopeScaling
from model.transformer import Transformer
from tasks.export.gguf_file import write_gguf
from tasks.export.gguf_shape import ARCHITECTURES, architecture
from tasks.export.gguf_tokenizer import vocabulary
from tasks.tokens.encoder import load
from tasks.tokens.patterns import PATTERNS, steps
from tests.export.test_export import export
from tests.published import TEMPLATE, published_folder

gguf = pytest.importorskip("gguf", reason="uv sync --extra gguf")
SIZES = {"width": 32, "depth": 2, "heads": 4, "kv_heads": 2, "head_dim": 16, "ffn_width": 48}
LLAMA = ModelConfig(vocab_size=320, context=64, tie_embeddings=False, **SIZES)
GEMMA = replace(LLAMA, tie_embeddings=True, activation="geglu", scale_embedding=True)
CAPS = {"attention_softcap": 50.0, "logit_softcap": 30.0}
LLAMA3 = RopeScaling(factor=8.0, original_context=16)
SHAPES = {
    "llama": replace(LLAMA, rope_scaling=LLAMA3, bias="attention"),
    "qwen2": replace(LLAMA, bias="qkv", head_dim=8),
    "qwen3": replace(LLAMA, qk_norm="head"),
    "gemma2": replace(
        GEMMA, norm_placement="sandwich", window=16, window_layers=(True, False), **CAPS
    ),
    "gpt2": replace(
        LLAMA, kv_heads=4, head_dim=8, norm="layer", positions="learned", bias="all",
        activation="gelu_tanh", tie_embeddings=True,
    ),
}  # fmt: skip
THEIRS = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_norm": "input_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return published_folder(tmp_path_factory.mktemp("published"))


def random_folder(folder: Path, config: ModelConfig) -> Path:
    """A published folder with another network, whose vectors are not at their start."""
    published_folder(folder)
    for file in folder.glob("model*"):
        file.unlink()
    torch.manual_seed(0)
    network = Transformer(config)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    hub.save(folder, network, {"bos_token_id": 1, "eos_token_id": 2})
    return folder


def tensors(file: Path) -> dict[str, Any]:
    return {tensor.name: tensor for tensor in gguf.GGUFReader(file).tensors}


def keys(file: Path) -> dict[str, Any]:
    return {name: field.contents() for name, field in gguf.GGUFReader(file).fields.items()}


def side_by_side(weight: np.ndarray, heads: int) -> np.ndarray:
    """Rows i and i + half of each head as neighbours."""
    size = len(weight) // heads
    order = [
        h * size + i + j for h in range(heads) for i in range(size // 2) for j in (0, size // 2)
    ]
    return weight[order]


@pytest.mark.parametrize("name", SHAPES)
def test_every_tensor_is_there_as_transformers_names_it(tmp_path: Path, name: str) -> None:
    config = SHAPES[name]
    source = random_folder(tmp_path / "model", config)
    found = export(source, "--to", tmp_path / "m.gguf", "--format", "gguf", "--type", "f32")
    assert found["architecture"] == ARCHITECTURES[hub.read_config(source)["model_type"]].name
    theirs = {n: t.numpy() for n, t in hub.tensors(source).items()}
    written = tensors(tmp_path / "m.gguf")
    extra = {"rope_freqs.weight"} if config.rope_scaling else set()
    assert len(written) == len(theirs) + len(extra)
    if name == "gpt2":  # whose matrices are the other way round, and whose names are its own
        qkv = theirs["transformer.h.1.attn.c_attn.weight"]
        assert np.array_equal(written["blk.1.attn_qkv.weight"].data, qkv.T)
        return
    assert np.array_equal(written["token_embd.weight"].data, theirs["model.embed_tokens.weight"])
    for ours, there in THEIRS.items():
        expected = theirs[f"model.layers.1.{there}.weight"]
        if name == "llama" and ours in ("attn_q", "attn_k"):
            expected = side_by_side(expected, 4 if ours == "attn_q" else 2)
        expected = expected + 1 if name == "gemma2" and "norm" in ours else expected
        assert np.allclose(written[f"blk.1.{ours}.weight"].data, expected, atol=1e-7), ours


def test_types_are_as_exact_as_they_can_be(tmp_path: Path) -> None:
    source = random_folder(tmp_path / "model", LLAMA)
    for type_ in ("f32", "f16", "q8_0"):
        export(source, "--to", tmp_path / type_, "--format", "gguf", "--type", type_)
    exact = tensors(tmp_path / "f32" / "f32-f32.gguf")
    half = tensors(tmp_path / "f16" / "f16-f16.gguf")
    coarse = tensors(tmp_path / "q8_0" / "q8_0-q8_0.gguf")
    for name, tensor in exact.items():
        plain = tensor.data
        if plain.ndim == 1:
            assert np.array_equal(half[name].data, plain) and np.array_equal(
                coarse[name].data, plain
            )
            continue
        assert np.array_equal(half[name].data, plain.astype(np.float16))
        kind = coarse[name].tensor_type
        if plain.shape[1] % 32:  # no whole blocks
            assert kind == gguf.GGMLQuantizationType.F16
            continue
        assert kind == gguf.GGMLQuantizationType.Q8_0
        blocks = plain.reshape(-1, 32)
        step = np.abs(blocks).max(1, keepdims=True) / 127
        back = gguf.quants.dequantize(coarse[name].data, kind).reshape(-1, 32)
        # Half a step, and what the scale loses as fp16.
        assert (np.abs(back - blocks) <= step * (0.5 + 127 * 2**-11)).all()


def test_it_tells_the_tokenizer_and_the_shape(folder: Path, tmp_path: Path) -> None:
    export(folder, "--to", tmp_path / "m.gguf", "--format", "gguf")
    found, encoder = keys(tmp_path / "m.gguf"), load(folder)
    said = {name: found[f"tokenizer.ggml.{name}"] for name in ("model", "pre", "add_bos_token")}
    assert said == {"model": "gpt2", "pre": "gpt-2", "add_bos_token": True}
    ids = ("bos", "eos", "eot", "padding", "unknown")
    assert [found[f"tokenizer.ggml.{name}_token_id"] for name in ids] == [1, 2, 3, 2, 0]
    words = json.loads(encoder.definition)["model"]
    tokens = found["tokenizer.ggml.tokens"]
    count = len(words["vocab"])
    assert {tokens[i]: i for i in range(count)} == words["vocab"]
    assert tokens[count] == f"[PAD{count}]" and len(tokens) == 320
    types = found["tokenizer.ggml.token_type"]
    assert types[:5] == [3, 3, 3, 3, 1] and set(types[count:]) == {5} and len(types) == 320
    merges = [m if isinstance(m, str) else " ".join(m) for m in words["merges"]]
    assert found["tokenizer.ggml.merges"] == merges
    assert found["tokenizer.chat_template"] == TEMPLATE
    shape = {"context_length": 128, "embedding_length": 16, "block_count": 2, "vocab_size": 320}
    assert {name: found[f"llama.{name}"] for name in shape} == shape
    assert found["llama.attention.head_count_kv"] == 1 and found["general.name"] == "m"


def byte_level(pattern: str, **more: Any) -> dict[str, Any]:
    tokenizer = Tokenizer(models.BPE({"a": 0, "b": 1, "ab": 2}, [("a", "b")], **more))
    parts = [*steps(pattern, []), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(parts)
    definition: dict[str, Any] = json.loads(tokenizer.to_str())
    return definition


def test_words_are_parted_by_the_name_that_llama_cpp_has_for_the_pattern() -> None:
    found = {name: vocabulary(byte_level(name), 3).words for name in PATTERNS}
    assert found == {"gpt2": "gpt-2", "cl100k": "dbrx", "o200k": "gpt-4o", "qwen": "qwen2"}
    assert vocabulary(byte_level("cl100k", ignore_merges=True), 3).words == "llama-bpe"
    with pytest.raises(BadInput, match="by none of the patterns gpt2, cl100k"):
        vocabulary(byte_level(r"\w+|\W+"), 3)


def test_byte_pairs_of_sentencepiece_have_scores() -> None:
    words = {"<unk>": 0, "\u2581": 1, "a": 2, "b": 3, "ab": 4, "\u2581ab": 5}
    merges = [("a", "b"), ("\u2581", "ab")]
    tokenizer = Tokenizer(models.BPE(words, merges, unk_token="<unk>", byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    found = vocabulary(json.loads(tokenizer.to_str()), 8)
    assert (found.model, found.prefix, found.merges) == ("llama", True, [])
    assert found.scores[4] > found.scores[5] and len(found.scores) == 8
    tokenizer.normalizer = normalizers.Lowercase()
    with pytest.raises(BadInput, match="the step Lowercase"):
        vocabulary(json.loads(tokenizer.to_str()), 8)
    with pytest.raises(BadInput, match="is a Unigram model"):
        vocabulary({"model": {"type": "Unigram"}}, 8)


@pytest.mark.parametrize(
    ("model_type", "change", "match"),
    [
        ("olmo2", {}, "of type olmo2 is not written as GGUF here; llama, mistral, qwen2"),
        ("mistral", {"window": 16}, "model.window_layers is"),
        ("qwen2", {"bias": "qkv"}, "model.head_dim is 16; llama.cpp's qwen2 has only 8"),
        ("llama", {"activation": "geglu"}, "model.activation is 'geglu'; llama.cpp's llama"),
        ("qwen3", {"rope_scaling": LLAMA3}, "model.rope_scaling is"),
        ("gemma", {"activation": "geglu"}, "model.tie_embeddings is False"),
    ],
)
def test_what_llama_cpp_would_compute_otherwise_is_refused(
    model_type: str, change: dict[str, Any], match: str
) -> None:
    with pytest.raises(BadInput, match=match):
        architecture(model_type, replace(LLAMA, **change))


def test_values_beyond_fp16_are_refused(folder: Path, tmp_path: Path) -> None:
    network = hub.load(folder)
    with torch.no_grad():
        network.head.weight[0, 0] = 1e6
    with pytest.raises(BadInput, match=r"output.weight holds 1e\+06.*take --type bf16"):
        write_gguf(network, load(folder), folder, tmp_path / "m.gguf", "f16", "m")


def test_without_the_package_it_says_how_to_get_it(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    found = export(folder, "--to", tmp_path / "m.gguf", "--format", "gguf")["error"]
    assert "uv pip install 'headrace[gguf]'" in found and not list(tmp_path.iterdir())
