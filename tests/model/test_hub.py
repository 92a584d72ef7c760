"""Exported folders load in transformers with the same numbers; what has no counterpart says why."""

import json
import math
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from model import hub, hub_config
from model.config import ExpertConfig, LatentConfig, ModelConfig, RopeScaling
from model.encoder_decoder import EncoderDecoder, build
from model.shapes import from_depth
from model.transformer import Transformer

SIZES = {"vocab_size": 67, "context": 40, "width": 32, "heads": 4}
BASE = replace(from_depth(2, **SIZES), tie_embeddings=True)
GROUPED = replace(BASE, kv_heads=2)
UNTIED = {"tie_embeddings": False}
LLAMA_3 = RopeScaling(factor=8.0, original_context=16)
YARN = RopeScaling(
    kind="yarn", factor=4.0, low_frequency_factor=1.0, high_frequency_factor=32.0,
    original_context=10, attention_factor=1.14,
)  # fmt: skip
YARN_SCALE = 24**-0.5 * (0.1 * math.log(4.0) + 1) ** 2
GEMMA = replace(
    GROUPED, norm_placement="sandwich", activation="geglu", window=5, window_layers=(True, False),
    attention_scale=16**-0.5, attention_softcap=5.0, logit_softcap=3.0, scale_embedding=True,
)  # fmt: skip
GPT2 = replace(
    BASE, norm="layer", positions="learned", activation="gelu_tanh", bias="all", ffn_width=128
)
FALCON = replace(
    BASE, norm="layer", activation="gelu", residual="parallel", kv_heads=1, ffn_width=128
)
DEEPSEEK = replace(
    BASE, norm_epsilon=1e-6, head_dim=24,
    latent=LatentConfig(kv_rank=16, query_rank=24, rope_dim=8, value_dim=12),
    experts=ExpertConfig(
        routed=8, active=2, width=12, shared=1, dense_layers=1, scoring="sigmoid", scale=2.5,
        groups=4, active_groups=2, balance_loss=1e-4, balance_bias=1e-3,
    ),
)  # fmt: skip
BERT = replace(from_depth(2, **SIZES, family="encoder"), tie_embeddings=True)
ROBERTA = replace(BERT, position_offset=2, segments=1, norm_epsilon=1e-5)
T5 = from_depth(2, **SIZES, family="encoder_decoder")
T5_TIED = replace(T5, activation="relu", tie_embeddings=True, logit_scale=32**-0.5)
BART = replace(
    T5, norm="layer", norm_placement="post", norm_epsilon=1e-5, embedding_norm=True,
    positions="learned", position_offset=2, activation="gelu", bias="all", attention_scale=None,
    tie_embeddings=True,
)  # fmt: skip

EXPORTED = {
    "llama-tied": (BASE, "LlamaForCausalLM"),
    "llama-untied": (replace(BASE, **UNTIED), "LlamaForCausalLM"),
    "llama-biased": (replace(GROUPED, bias="all"), "LlamaForCausalLM"),
    "llama-3.1": (replace(GROUPED, rope_scaling=LLAMA_3, rope_theta=500.0), "LlamaForCausalLM"),
    "llama-yarn": (replace(GROUPED, rope_scaling=YARN), "LlamaForCausalLM"),
    "llama-linear": (
        replace(GROUPED, rope_scaling=RopeScaling(kind="linear", factor=4.0)), "LlamaForCausalLM",
    ),
    "llama-wide-heads": (replace(BASE, head_dim=12), "LlamaForCausalLM"),
    "mistral": (replace(GROUPED, window=5), "MistralForCausalLM"),
    "mistral-untied": (replace(GROUPED, window=5, **UNTIED), "MistralForCausalLM"),
    "qwen2": (replace(GROUPED, bias="qkv"), "Qwen2ForCausalLM"),
    "qwen2-untied": (
        replace(GROUPED, bias="qkv", rope_scaling=YARN, **UNTIED), "Qwen2ForCausalLM",
    ),
    "qwen3": (replace(GROUPED, qk_norm="head"), "Qwen3ForCausalLM"),
    "gemma2": (GEMMA, "Gemma2ForCausalLM"),
    "gemma2-untied": (replace(GEMMA, attention_scale=None, **UNTIED), "Gemma2ForCausalLM"),
    "gpt2": (GPT2, "GPT2LMHeadModel"),
    "gpt2-untied": (replace(GPT2, ffn_width=64, **UNTIED), "GPT2LMHeadModel"),
    "openai-gpt": (replace(GPT2, norm_placement="post"), "OpenAIGPTLMHeadModel"),
    "falcon-7b": (FALCON, "FalconForCausalLM"),
    "falcon-40b": (replace(FALCON, residual="parallel_norms", kv_heads=2), "FalconForCausalLM"),
    "falcon-11b": (replace(FALCON, kv_heads=2, **UNTIED), "FalconForCausalLM"),
    "falcon-serial": (
        replace(FALCON, residual="serial", kv_heads=4, bias="all"), "FalconForCausalLM",
    ),
    "deepseek-v3": (DEEPSEEK, "DeepseekV3ForCausalLM"),
    "deepseek-v3-untied": (
        replace(DEEPSEEK, latent=replace(DEEPSEEK.latent, query_rank=None), **UNTIED),
        "DeepseekV3ForCausalLM",
    ),
    "deepseek-v3-yarn": (
        replace(DEEPSEEK, rope_scaling=YARN, attention_scale=YARN_SCALE),
        "DeepseekV3ForCausalLM",
    ),
    "bert": (replace(BERT, pooler=False), "BertForMaskedLM"),
    "bert-untied": (replace(BERT, pooler=False, **UNTIED), "BertForMaskedLM"),
    "bert-base": (replace(BERT, head_transform=False), "BertModel"),
    "roberta": (replace(ROBERTA, pooler=False), "RobertaForMaskedLM"),
    "roberta-untied": (replace(ROBERTA, pooler=False, **UNTIED), "RobertaForMaskedLM"),
    "roberta-base": (replace(ROBERTA, head_transform=False), "RobertaModel"),
    "t5": (T5_TIED, "T5ForConditionalGeneration"),
    "t5-v1.1": (T5, "T5ForConditionalGeneration"),
    "t5-shallow-encoder": (replace(T5_TIED, encoder_depth=1), "T5ForConditionalGeneration"),
    "bart": (BART, "BartForConditionalGeneration"),
    "bart-untied": (replace(BART, encoder_depth=3, **UNTIED), "BartForConditionalGeneration"),
    "bart-scaled": (replace(BART, scale_embedding=True), "BartForConditionalGeneration"),
}  # fmt: skip
OWN = {
    "norm_placement": replace(BASE, norm_placement="post"),
    "activation": replace(BASE, activation="relu2"),
    "positions": replace(BASE, positions="alibi"),
    "norm": replace(BASE, norm="layer"),
    "logit_softcap": replace(BASE, logit_softcap=20.0),
    "scale_embedding": replace(BASE, scale_embedding=True, bias="all"),
    "kv_heads": replace(GPT2, kv_heads=2),
    "head_dim": replace(GPT2, head_dim=12),
    "experts": replace(BASE, experts=ExpertConfig(routed=4, active=2, width=8)),
    "experts without bias": replace(
        DEEPSEEK, experts=replace(DEEPSEEK.experts, balance_bias=0.0, shared=0)
    ),
    "multi_token": replace(DEEPSEEK, multi_token=1),
    "attention_scale": replace(BASE, attention_scale=0.3),
    "segments": replace(BART, segments=2),
    "relative_buckets": replace(BART, relative_buckets=16),
    "qk_norm": replace(BERT, qk_norm="head"),
    "tie_embeddings": replace(BERT, head_transform=False, **UNTIED),
}


def random_network(config: ModelConfig) -> Transformer | EncoderDecoder:
    """Every parameter random, so that a swapped or forgotten one shows."""
    torch.manual_seed(0)
    network = build(config)
    for tensor in network.state_dict().values():
        torch.nn.init.normal_(tensor, mean=0.5 if tensor.ndim == 1 else 0.0, std=0.2)
    return network.eval()


INPUTS = torch.arange(60).reshape(2, 30) * 7 % 65 + 2
"""Longer than the context for which positions were first made, and without RoBERTa's padding, 1."""
TARGETS = torch.arange(24).reshape(2, 12) * 5 % 65 + 2
ATTENDED = torch.ones_like(INPUTS)
ATTENDED[1, 20:] = 0
PADDED = INPUTS.where(ATTENDED == 1, 1)


@torch.no_grad()
def ours(network: Transformer | EncoderDecoder, positions: Tensor | None = None) -> Tensor:
    if isinstance(network, EncoderDecoder):
        return network.logits(network(PADDED, TARGETS, ATTENDED))
    hidden = network(PADDED, ATTENDED, positions)
    base = network.config.family == "encoder" and not network.config.head_transform
    return (hidden if base else network.logits(hidden))[ATTENDED == 1]


STATES = ("logits", "prediction_logits", "last_hidden_state")


@torch.no_grad()
def of_transformers(model) -> Tensor:
    if model.config.is_encoder_decoder:
        return model(PADDED, attention_mask=ATTENDED, decoder_input_ids=TARGETS).logits
    out = model(PADDED, attention_mask=ATTENDED)
    states = next(iter(getattr(out, name) for name in STATES if hasattr(out, name)))
    return states[ATTENDED == 1]


def transformers_loads(folder, config: ModelConfig, **options):
    kinds = {"decoder": "ForCausalLM", "encoder_decoder": "ForSeq2SeqLM"}
    kind = kinds.get(config.family, "ForMaskedLM" if config.head_transform else "")
    return auto(kind, folder, **options)


def auto(kind: str, folder, **options):
    """The folder, loaded by the class for this kind that Transformers finds itself."""
    import transformers

    model_class = getattr(transformers, f"AutoModel{kind}")
    return model_class.from_pretrained(folder, attn_implementation="eager", **options)


@pytest.mark.parametrize("name", EXPORTED)
def test_transformers_loads_the_folder_and_gives_the_same_numbers(name, tmp_path):
    config, expected = EXPORTED[name]
    network = random_network(config)
    described = hub_config.describe(config, hub_config.model_type(config))
    assert described["architectures"] == [expected]
    hub.save(tmp_path, network)
    theirs, report = transformers_loads(tmp_path, config, output_loading_info=True)
    assert type(theirs).__name__ == expected
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert torch.allclose(ours(network), of_transformers(theirs), atol=1e-5)


@pytest.mark.parametrize("name", EXPORTED)
def test_a_folder_written_by_transformers_loads_here(name, tmp_path):
    config, _ = EXPORTED[name]
    hub.save(tmp_path / "ours", random_network(config))
    theirs = transformers_loads(tmp_path / "ours", config)
    theirs.save_pretrained(tmp_path / "theirs")
    network = hub.load(tmp_path / "theirs")
    assert network.config == config
    assert torch.allclose(ours(network), of_transformers(theirs), atol=1e-5)


SMALL = {
    "vocab_size": 67, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 48, "max_position_embeddings": 40,
}  # fmt: skip
THEIRS = {
    "GPT2LMHeadModel": {"vocab_size": 67, "n_embd": 32, "n_layer": 2, "n_head": 4},
    "LlamaForCausalLM": SMALL | {"num_key_value_heads": 2},
    "MistralForCausalLM": SMALL | {"sliding_window": None, "num_key_value_heads": 2},
    "Qwen2ForCausalLM": SMALL | {"tie_word_embeddings": True, "num_key_value_heads": 4},
    "Gemma2ForCausalLM": SMALL | {"head_dim": 12, "query_pre_attn_scalar": 9, "sliding_window": 6},
    "FalconForCausalLM": SMALL | {"new_decoder_architecture": True, "num_kv_heads": 2},
    "BertForMaskedLM": SMALL,
    "BertForPreTraining": SMALL,
    "XLMRobertaForMaskedLM": SMALL,
    "XLMRobertaModel": SMALL,
    "T5ForConditionalGeneration": {
        "vocab_size": 67, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4,
        "feed_forward_proj": "gated-gelu",
    },
    "BartForConditionalGeneration": {
        "vocab_size": 67, "d_model": 32, "encoder_layers": 2, "decoder_layers": 1,
        "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 48,
        "decoder_ffn_dim": 48, "scale_embedding": True,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", THEIRS)
def test_a_model_made_by_transformers_with_its_own_defaults_loads_here(name, tmp_path):
    import transformers

    model_class = getattr(transformers, name)
    torch.manual_seed(0)
    config = model_class.config_class(**THEIRS[name], attn_implementation="eager")
    theirs = model_class(config).eval()
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, mean=0.5 if parameter.ndim == 1 else 0.0, std=0.2)
    theirs.save_pretrained(tmp_path)
    assert torch.allclose(ours(hub.load(tmp_path).eval()), of_transformers(theirs), atol=1e-4)


@pytest.mark.parametrize("name", ["llama-3.1", "gpt2", "gemma2", "falcon-40b"])
def test_padding_on_the_left_is_as_in_transformers(name, tmp_path):
    network = random_network(EXPORTED[name][0])
    hub.save(tmp_path, network)
    theirs = transformers_loads(tmp_path, network.config)
    seen = ATTENDED.flip(1)
    positions = (seen.cumsum(1) - 1).clamp(min=0)
    with torch.no_grad():
        expected = theirs(INPUTS, attention_mask=seen, position_ids=positions).logits
        found = network.logits(network(INPUTS, seen, positions))
    assert torch.allclose(found[seen == 1], expected[seen == 1], atol=1e-5)


@pytest.mark.parametrize("config", [BERT, ROBERTA], ids=["bert", "roberta"])
def test_an_encoder_with_head_and_pooler_serves_both_of_their_classes(config, tmp_path):
    network = random_network(config)
    hub.save(tmp_path, network, {"pad_token_id": 1})
    with_head = auto("ForMaskedLM", tmp_path)
    assert torch.allclose(ours(network), of_transformers(with_head), atol=1e-5)
    base = auto("", tmp_path)
    with torch.no_grad():
        pooled = base(PADDED, attention_mask=ATTENDED).pooler_output
        assert torch.allclose(network.pool(network(PADDED, ATTENDED)), pooled, atol=1e-5)
    again = hub.load(tmp_path)
    assert again.config == config
    assert torch.equal(ours(again), ours(network))


def test_segments_are_token_types(tmp_path):
    network = random_network(BERT)
    hub.save(tmp_path, network)
    theirs = auto("ForMaskedLM", tmp_path)
    segments = (torch.arange(30) > 11).long().expand(2, -1)
    with torch.no_grad():
        found = network.logits(network(INPUTS, segments_BT=segments))
        expected = theirs(INPUTS, token_type_ids=segments).logits
    assert torch.allclose(found, expected, atol=1e-5)


def test_a_published_bert_file_keeps_its_pooler_and_loses_what_has_no_place(tmp_path):
    """It is named for its LM head alone, and holds a pooler, a tied copy and another head."""
    hub.save(tmp_path, random_network(replace(BERT, pooler=False)))
    weights = load_file(tmp_path / "model.safetensors")
    weights |= {
        "bert.pooler.dense.weight": torch.ones(32, 32),
        "cls.seq_relationship.bias": torch.ones(2),
    }
    weights |= {"bert.pooler.dense.bias": torch.ones(32)}
    weights["cls.predictions.decoder.weight"] = weights[
        "bert.embeddings.word_embeddings.weight"
    ].clone()
    save_file(weights, tmp_path / "model.safetensors")
    network = hub.load(tmp_path)
    assert network.config.pooler and network.pooler.bias.eq(1).all()


@pytest.mark.parametrize("field", OWN)
def test_what_has_no_counterpart_is_refused_by_field_but_still_saved_for_headrace(field, tmp_path):
    config = OWN[field]
    assert f"model.{field.split()[0]} is " in hub_config.obstacle(config)
    network = random_network(config)
    hub.save(tmp_path, network)
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == "headrace"
    again = hub.load(tmp_path)
    assert again.config == config
    assert torch.equal(ours(network), ours(again))


def test_a_config_of_headrace_from_before_a_field_existed_has_its_default(tmp_path):
    hub.save(tmp_path, random_network(OWN["positions"]))
    config = json.loads((tmp_path / "config.json").read_text())
    del config["relative_buckets"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert hub.load_config(tmp_path) == OWN["positions"]


def test_extra_keys_join_the_config_and_weights_come_back_exactly(tmp_path):
    network = random_network(EXPORTED["llama-untied"][0])
    hub.save(tmp_path, network, {"eos_token_id": 0})
    assert hub.read_config(tmp_path)["eos_token_id"] == 0
    again = hub.load(tmp_path).state_dict()
    assert all(torch.equal(again[name], weight) for name, weight in network.state_dict().items())
    assert set(again) == set(network.state_dict())


def test_extra_keys_that_contradict_the_counterpart_leave_it_none(tmp_path):
    network = random_network(ROBERTA)
    hub.save(tmp_path, network, {"pad_token_id": 0})
    assert hub.read_config(tmp_path)["model_type"] == "headrace"
    assert torch.equal(ours(hub.load(tmp_path)), ours(network))


def test_a_tied_head_is_stored_once_and_stays_tied(tmp_path):
    hub.save(tmp_path, random_network(BASE))
    network = hub.load(tmp_path)
    assert network.head_weight is network.embedding.weight
    assert network.head_weight.requires_grad


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "bloom"}, "model_type is 'bloom'; it must be one of llama, gpt2"),
        ({"hidden_act": "tanh"}, "hidden_act is 'tanh'; it must be one of silu"),
        ({"num_hidden_layers": 3}, "9 missing .*model.layers.2"),
        ({"num_hidden_layers": 1}, "9 unknown .*model.layers.1"),
        ({"rope_scaling": {"rope_type": "dynamic"}}, "rope_type is 'dynamic'; it must be default"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5; it must be 1"),
        ({"mlp_bias": True}, "6 missing .*mlp.down_proj.bias"),
        ({"quantization_config": {"bits": 4}}, "quantization_config is .*; it must be None"),
        ({"hidden_size": None}, r"config\.json has no 'hidden_size'"),
    ],
)
def test_a_folder_that_does_not_fit_is_refused_with_the_reason(change, message, tmp_path):
    hub.save(tmp_path, random_network(BASE))
    config = hub.read_config(tmp_path) | change
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=message):
        hub.load(tmp_path)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("falcon-7b", {"alibi": True}, "alibi is True; it must be False"),
        ("gemma2", {"layer_types": ["linear_attention"] * 2}, "it must be 2 of full_attention"),
        ("gemma2", {"layer_types": ["full_attention"]}, "it must be 2 of full_attention, sliding"),
        ("gemma2", {"use_bidirectional_attention": True}, "use_bidirectional_attention is True"),
    ],
)
def test_a_key_that_would_change_what_blocks_do_is_refused(name, change, message, tmp_path):
    hub.save(tmp_path, random_network(EXPORTED[name][0]))
    config = hub.read_config(tmp_path) | change
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=message):
        hub.load(tmp_path)


def test_a_folder_without_a_config_is_not_a_model(tmp_path):
    with pytest.raises(ValueError, match=r"it has no config\.json"):
        hub.load(tmp_path)
