"""Exported folders load in transformers, with the same logits; what has no counterpart says why."""

import json
from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForCausalLM

from model import hub
from model.config import ModelConfig, RopeScaling, from_depth
from model.transformer import Transformer

BASE = replace(from_depth(2, vocab_size=67, context=40, width=32, heads=4), tie_embeddings=True)
GROUPED = replace(BASE, kv_heads=2)
SCALED = RopeScaling(
    factor=8.0, low_frequency_factor=1.0, high_frequency_factor=4.0, original_context=16
)
GEMMA = replace(
    GROUPED, norm_placement="sandwich", activation="geglu", window=5, window_layers="even",
    attention_scale=16**-0.5, attention_softcap=5.0, logit_softcap=3.0, scale_embedding=True,
)  # fmt: skip
GPT2 = replace(BASE, norm="layer", positions="learned", activation="gelu_tanh", bias="all")

EXPORTED = {
    "llama-tied": (BASE, "LlamaForCausalLM"),
    "llama-untied": (replace(BASE, tie_embeddings=False), "LlamaForCausalLM"),
    "llama-biased": (replace(GROUPED, bias="all"), "LlamaForCausalLM"),
    "llama-3.1": (replace(GROUPED, rope_scaling=SCALED, rope_theta=500.0), "LlamaForCausalLM"),
    "llama-wide-heads": (replace(BASE, head_dim=12), "LlamaForCausalLM"),
    "mistral": (replace(GROUPED, window=5), "MistralForCausalLM"),
    "qwen2": (replace(GROUPED, bias="qkv"), "Qwen2ForCausalLM"),
    "qwen3": (replace(GROUPED, qk_norm=True), "Qwen3ForCausalLM"),
    "gemma2": (GEMMA, "Gemma2ForCausalLM"),
    "gpt2": (GPT2, "GPT2LMHeadModel"),
}
OWN = {
    "norm_placement": replace(BASE, norm_placement="post"),
    "activation": replace(BASE, activation="relu2"),
    "positions": replace(BASE, positions="sinusoidal"),
    "norm": replace(BASE, norm="layer"),
    "logit_softcap": replace(BASE, logit_softcap=20.0),
    "scale_embedding": replace(BASE, scale_embedding=True),
    "kv_heads": replace(GPT2, kv_heads=2),
}


def random_network(config: ModelConfig) -> Transformer:
    """Every parameter random, so that a swapped or forgotten one shows."""
    torch.manual_seed(0)
    network = Transformer(config)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, mean=0.5 if parameter.ndim == 1 else 0.0, std=0.2)
    return network.eval()


def logits(network: Transformer, inputs: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return network.logits(network(inputs))


INPUTS = torch.arange(60).reshape(2, 30) * 7 % 67


@pytest.mark.parametrize("name", EXPORTED)
def test_transformers_loads_the_folder_and_gives_the_same_logits(name, tmp_path):
    config, expected = EXPORTED[name]
    network = random_network(config)
    assert hub.architecture(config) == expected
    hub.save(tmp_path, network)
    theirs, report = AutoModelForCausalLM.from_pretrained(
        tmp_path, output_loading_info=True, attn_implementation="eager"
    )
    assert type(theirs).__name__ == expected
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    with torch.no_grad():
        assert torch.allclose(logits(network, INPUTS), theirs(INPUTS).logits, atol=1e-5)


@pytest.mark.parametrize("name", EXPORTED)
def test_a_folder_written_by_transformers_loads_here(name, tmp_path):
    config, _ = EXPORTED[name]
    hub.save(tmp_path / "ours", random_network(config))
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "ours", attn_implementation="eager")
    theirs.save_pretrained(tmp_path / "theirs")
    network = hub.load(tmp_path / "theirs")
    assert network.config == config
    with torch.no_grad():
        assert torch.allclose(logits(network, INPUTS), theirs(INPUTS).logits, atol=1e-5)


@pytest.mark.parametrize("field", OWN)
def test_what_has_no_counterpart_is_refused_by_field_but_still_saved_for_headrace(field, tmp_path):
    config = OWN[field]
    with pytest.raises(ValueError, match=rf"model\.{field} is "):
        hub.architecture(config)
    network = random_network(config)
    hub.save(tmp_path, network)
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == "headrace"
    again = hub.load(tmp_path)
    assert again.config == config
    assert torch.equal(logits(network, INPUTS), logits(again, INPUTS))


def test_extra_keys_join_the_config_and_weights_come_back_exactly(tmp_path):
    network = random_network(EXPORTED["llama-untied"][0])
    hub.save(tmp_path, network, {"eos_token_id": 0})
    assert hub.read_config(tmp_path)["eos_token_id"] == 0
    again = hub.load(tmp_path).state_dict()
    assert all(torch.equal(again[name], weight) for name, weight in network.state_dict().items())
    assert set(again) == set(network.state_dict())


def test_a_tied_head_is_stored_once_and_stays_tied(tmp_path):
    hub.save(tmp_path, random_network(BASE))
    network = hub.load(tmp_path)
    assert network.head_weight is network.embedding.weight
    assert network.head_weight.requires_grad


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "bloom"}, "model_type is 'bloom'; it must be one of gpt2, llama"),
        ({"hidden_act": "tanh"}, "the activation is 'tanh'; it must be one of silu"),
        ({"num_hidden_layers": 3}, "9 missing .*model.layers.2"),
        ({"num_hidden_layers": 1}, "9 unknown .*model.layers.1"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "rope_type is 'yarn'"),
    ],
)
def test_a_folder_that_does_not_fit_is_refused_with_the_reason(change, message, tmp_path):
    hub.save(tmp_path, random_network(BASE))
    config = hub.read_config(tmp_path) | change
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=message):
        hub.load(tmp_path)


def test_a_folder_without_a_config_is_not_a_model(tmp_path):
    with pytest.raises(ValueError, match=r"it has no config\.json"):
        hub.load(tmp_path)
