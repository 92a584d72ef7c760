"""Published architectures: what `transformers` makes of a config, and what is made of it here.

Every instance is small and of odd sizes, with the settings that set its architecture apart.
"""

import random
from functools import cache
from typing import TYPE_CHECKING

import pytest
import torch

from model import hub
from model.generation import Ending, beam_search, generate

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

TYPES = ["full_attention", "sliding_attention", "sliding_attention", "full_attention"]
SIZES = {
    "vocab_size": 67, "hidden_size": 36, "num_hidden_layers": 4, "num_attention_heads": 6,
    "intermediate_size": 52, "max_position_embeddings": 64, "pad_token_id": 1, "bos_token_id": 2,
    "eos_token_id": 3,
}  # fmt: skip
GROUPED = SIZES | {"num_key_value_heads": 2}
WIDE = GROUPED | {"head_dim": 10}
EVEN = SIZES | {"hidden_size": 48}
SLIDING = {"sliding_window": 6, "layer_types": TYPES}
QWEN = {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 2}
EXPERTS = {"num_experts_per_tok": 2, "sliding_window": 6}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 10}
LONG = {
    "rope_type": "longrope", "original_max_position_embeddings": 20,
    "short_factor": [1.0, 1.5], "long_factor": [2.0, 7.0],
}  # fmt: skip
FACTORISED = SIZES | {"embedding_size": 27}
DISTILLED = {
    "vocab_size": 67, "dim": 36, "n_layers": 4, "n_heads": 6, "hidden_dim": 52, "pad_token_id": 1,
    "max_position_embeddings": 64,
}  # fmt: skip
DISENTANGLED = SIZES | {
    "relative_attention": True, "position_buckets": 8, "position_biased_input": False,
    "norm_rel_ebd": "layer_norm", "share_att_key": True, "pos_att_type": ["p2c", "c2p"],
    "max_relative_positions": 64,
}  # fmt: skip
RELATIVE = {
    "vocab_size": 67, "d_model": 36, "n_layer": 3, "n_head": 6, "d_inner": 52, "pad_token_id": 1,
    "summary_type": "first",
}  # fmt: skip
MARKS = {"cls_token_id": 2, "sep_token_id": 3}
T5 = {
    "vocab_size": 67, "d_model": 32, "d_kv": 9, "d_ff": 48, "num_layers": 2,
    "num_decoder_layers": 3, "num_heads": 4,
}  # fmt: skip
INSTANCES = {
    "llama-attention-bias": ("LlamaForCausalLM", WIDE | {"attention_bias": True}),
    "llama-feed-forward-bias": ("LlamaForCausalLM", GROUPED | {"mlp_bias": True}),
    "mistral-heads": ("MistralForCausalLM", WIDE | {"sliding_window": 6}),
    "mixtral": ("MixtralForCausalLM", WIDE | EXPERTS | {"num_local_experts": 5}),
    "qwen2-windows": ("Qwen2ForCausalLM", GROUPED | QWEN),
    "qwen3": ("Qwen3ForCausalLM", WIDE | QWEN | {"attention_bias": True}),
    "qwen3-yarn": ("Qwen3ForCausalLM", WIDE | {"rope_scaling": YARN, "tie_word_embeddings": True}),
    "qwen3-moe": (
        "Qwen3MoeForCausalLM",
        WIDE | EXPERTS | {"num_experts": 5, "moe_intermediate_size": 14, "mlp_only_layers": [1],
        "norm_topk_prob": True, "use_sliding_window": True},
    ),
    "qwen3-moe-every-other": (
        "Qwen3MoeForCausalLM",
        WIDE | EXPERTS | {"num_experts": 5, "moe_intermediate_size": 14, "decoder_sparse_step": 2},
    ),
    "gemma": ("GemmaForCausalLM", WIDE | {"hidden_act": "gelu"}),
    "gemma2-layer-types": (
        "Gemma2ForCausalLM", WIDE | SLIDING | {"query_pre_attn_scalar": 15},
    ),
    "gemma3": (
        "Gemma3ForCausalLM",
        WIDE | SLIDING | {"query_pre_attn_scalar": 15, "final_logit_softcapping": 3.0},
    ),
    "gemma3-pattern": (
        "Gemma3ForCausalLM",
        WIDE | {"sliding_window": 6, "sliding_window_pattern": 3, "rope_theta": 300.0,
        "rope_local_base_freq": 50.0, "rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    ),
    "olmo2": ("Olmo2ForCausalLM", GROUPED | {"attention_bias": True}),
    "olmo3": ("Olmo3ForCausalLM", GROUPED | {"sliding_window": 6, "rope_scaling": YARN}),
    "smollm3": (
        "SmolLM3ForCausalLM",
        GROUPED | {"use_sliding_window": True, "sliding_window": 6, "no_rope_layers": [1, 0, 1, 1]},
    ),
    "smollm3-interval": (
        "SmolLM3ForCausalLM", GROUPED | {"no_rope_layer_interval": 3, "tie_word_embeddings": False},
    ),
    "phi3": (
        "Phi3ForCausalLM",
        EVEN | {"num_key_value_heads": 3, "sliding_window": 6, "partial_rotary_factor": 0.5},
    ),
    "phi3-long": (
        "Phi3ForCausalLM",
        EVEN | {"partial_rotary_factor": 0.5, "rope_scaling": LONG,
        "original_max_position_embeddings": 20},
    ),
    "gpt-neox": ("GPTNeoXForCausalLM", EVEN | {"rotary_pct": 0.25, "rotary_emb_base": 500}),
    "gpt-neox-serial": (
        "GPTNeoXForCausalLM",
        EVEN | {"use_parallel_residual": False, "attention_bias": False, "hidden_act": "gelu_new",
        "tie_word_embeddings": True, "rotary_pct": 1.0},
    ),
    "distilbert": ("DistilBertForMaskedLM", DISTILLED),
    "distilbert-untied": (
        "DistilBertForMaskedLM", DISTILLED | {"activation": "relu", "tie_word_embeddings": False},
    ),
    "distilbert-base": ("DistilBertModel", DISTILLED),
    "albert": ("AlbertForMaskedLM", FACTORISED),
    "albert-untied": (
        "AlbertForMaskedLM", FACTORISED | {"hidden_act": "relu", "tie_word_embeddings": False},
    ),
    "albert-base": ("AlbertModel", FACTORISED),
    "electra": ("ElectraForPreTraining", FACTORISED),
    "electra-generator": ("ElectraForMaskedLM", FACTORISED | {"tie_word_embeddings": False}),
    "electra-unprojected": ("ElectraForPreTraining", SIZES | {"embedding_size": 36}),
    "electra-base": ("ElectraModel", FACTORISED),
    "deberta-v2": ("DebertaV2ForMaskedLM", DISENTANGLED),
    "deberta-v2-untied": (
        "DebertaV2ForMaskedLM",
        DISENTANGLED | {"type_vocab_size": 2, "max_relative_positions": 40, "position_buckets": 12,
        "pos_att_type": "c2p|p2c", "tie_word_embeddings": False},
    ),
    "deberta-v2-base": ("DebertaV2Model", DISENTANGLED),
    "xlnet": ("XLNetLMHeadModel", RELATIVE),
    "xlnet-untied": (
        "XLNetLMHeadModel", RELATIVE | {"ff_activation": "relu", "tie_word_embeddings": False},
    ),
    "xlnet-base": ("XLNetModel", RELATIVE),
    "modernbert": ("ModernBertForMaskedLM", EVEN | MARKS | {"local_attention": 7}),
    "modernbert-biased": (
        "ModernBertForMaskedLM",
        EVEN | MARKS | {"local_attention": 9, "layer_types": TYPES, "norm_bias": True,
        "attention_bias": True, "mlp_bias": True, "classifier_bias": True,
        "tie_word_embeddings": False},
    ),
    "modernbert-base": (
        "ModernBertModel",
        EVEN | MARKS | {"local_attention": 7, "global_rope_theta": 90.0, "local_rope_theta": 30.0,
        "global_attn_every_n_layers": 2},
    ),
    "t5": ("T5ForConditionalGeneration", T5),
    "t5-v1.1": (
        "T5ForConditionalGeneration",
        T5 | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    ),
    "mt5": ("MT5ForConditionalGeneration", T5),
}  # fmt: skip
DECODERS = [name for name, (kind, _) in INSTANCES.items() if kind.endswith("CausalLM")]
OWN_HEADS = ["t5-v1.1", "mt5", "gemma"]
"""Whose checkpoints hold a head of its own, while the config says it is tied."""

SEEN = torch.ones(2, 30, dtype=torch.long)
SEEN[1, 20:] = 0
INPUTS = (torch.arange(60).reshape(2, 30) * 7 % 63 + 4).where(SEEN == 1, 1)
TARGETS = torch.arange(24).reshape(2, 12) * 5 % 63 + 4


def made_config(kind: str, options: dict) -> "PreTrainedConfig":
    """What Transformers makes of these settings."""
    import transformers

    return getattr(transformers, kind).config_class(**options)


def made(kind: str, options: dict, seed: int = 0) -> "PreTrainedModel":
    """A model whose every number is random, so that a swapped or forgotten one shows."""
    import transformers

    torch.manual_seed(seed)
    model_class, config = getattr(transformers, kind), made_config(kind, options)
    config._attn_implementation = config._experts_implementation = "eager"
    model = model_class(config).eval()
    for parameter in model.parameters():
        mean = 0.5 if parameter.ndim == 1 and "Gemma" not in kind else 0.0  # theirs are less 1
        torch.nn.init.normal_(parameter, mean=mean, std=0.2)
    return model


@cache
def instance(name: str) -> "PreTrainedModel":
    model = made(*INSTANCES[name])
    if name in OWN_HEADS:
        model.lm_head.weight = torch.nn.Parameter(torch.randn(67, model.lm_head.in_features))
    return model


@torch.no_grad()
def theirs(model: "PreTrainedModel") -> torch.Tensor:
    if model.config.is_encoder_decoder:
        return model(INPUTS, attention_mask=SEEN, decoder_input_ids=TARGETS).logits
    out = model(INPUTS, attention_mask=SEEN)
    return (out.logits if hasattr(out, "logits") else out.last_hidden_state)[SEEN == 1]


@torch.no_grad()
def ours(network: hub.Transformer | hub.EncoderDecoder) -> torch.Tensor:
    network.eval()
    if isinstance(network, hub.EncoderDecoder):
        return network.logits(network(INPUTS, TARGETS, SEEN))
    hidden = network(INPUTS, SEEN)[SEEN == 1]
    if network.config.detector:
        return network.detector(hidden)
    base = network.config.family == "encoder" and not network.config.biased_head
    return hidden if base else network.logits(hidden)


def check(model: "PreTrainedModel", folder) -> None:
    """It loads here with the same numbers, and goes back with none changed."""
    model.save_pretrained(folder / "theirs")
    network = hub.load(folder / "theirs")
    found, expected = ours(network), theirs(model)
    scale = max(1.0, float(expected.abs().max()))
    assert float((found - expected).abs().max()) < 1e-5 * scale
    hub.save(folder / "ours", network)
    assert hub.load_config(folder / "ours") == network.config
    again, report = type(model).from_pretrained(
        folder / "ours", output_loading_info=True, attn_implementation="eager",
        experts_implementation="eager",
    )  # fmt: skip
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert torch.equal(theirs(again.eval()), expected)


@pytest.mark.parametrize("name", INSTANCES)
def test_it_loads_with_the_same_logits_and_goes_back_with_the_same(name, tmp_path):
    check(instance(name), tmp_path)


@pytest.mark.parametrize("name", DECODERS)
def test_greedy_generation_through_the_cache_is_that_of_transformers(name, tmp_path):
    model = instance(name)
    model.save_pretrained(tmp_path)
    prompts = [list(range(5, 30)), [9, 8, 7]]
    (first, second) = generate(hub.load(tmp_path), prompts, Ending(14))
    for prompt, found in zip(prompts, (first, second), strict=True):
        out = model.generate(
            torch.tensor([prompt]), max_new_tokens=14, do_sample=False, eos_token_id=None
        )
        assert found.ids == out[0, len(prompt) :].tolist()


@pytest.mark.parametrize("name", ["llama-attention-bias", "olmo2", "gemma3"])
def test_beams_without_a_length_penalty_are_those_of_transformers(name, tmp_path):
    model = instance(name)
    model.save_pretrained(tmp_path)
    network, prompts = hub.load(tmp_path), ([5, 9, 8], [20, 21], [40, 3, 7, 7])
    for prompt, stop in zip(prompts, (3, 6, 9), strict=True):
        out = model.generate(
            torch.tensor([prompt]), max_new_tokens=9, num_beams=4, do_sample=False,
            length_penalty=0.0, eos_token_id=stop,
        )[0, len(prompt) :].tolist()  # fmt: skip
        expected = out[: out.index(stop)] if stop in out else out
        found = beam_search(network, prompt, Ending(9, frozenset({stop})), beams=4)
        assert found.ids == expected


SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 9))]


def odd(name: str, seed: int) -> tuple[str, dict]:
    """The same architecture in other sizes."""
    kind, options = INSTANCES[name]
    draw = random.Random(f"{name} {seed}")
    if kind.startswith(("T5", "MT5")):
        other = {"vocab_size": draw.randint(68, 99), "d_model": draw.randint(3, 40)}
        return kind, options | other | {
            "d_kv": draw.randint(3, 11),
            "num_heads": draw.randint(1, 5),
        }
    if kind.startswith("DistilBert"):
        heads = draw.randint(1, 6)
        return kind, options | {"n_heads": heads, "dim": heads * draw.randint(2, 9)}
    if kind.startswith("XLNet"):
        heads = 2 * draw.randint(1, 3)
        return kind, options | {
            "vocab_size": draw.randint(68, 99), "n_head": heads, "d_inner": draw.randint(11, 60),
            "d_model": heads * draw.randint(2, 9), "n_layer": draw.randint(1, 4),
        }  # fmt: skip
    shared = draw.randint(1, 3)
    heads = shared * draw.randint(1, 3)
    width = heads * 8 if name.startswith("phi3-long") else heads * 4 * draw.randint(1, 4)
    other = {
        "vocab_size": draw.randint(68, 99), "hidden_size": width, "num_attention_heads": heads,
        "intermediate_size": draw.randint(11, 60), "tie_word_embeddings": draw.random() < 0.5,
    }  # fmt: skip
    if options.get("embedding_size") == options.get("hidden_size", 0):
        other["embedding_size"] = width
    if "num_key_value_heads" in options:
        other["num_key_value_heads"] = shared
    if "head_dim" in options:
        other["head_dim"] = 2 * draw.randint(2, 8)
    if "layer_types" in options:
        other["layer_types"] = draw.choices(TYPES, k=4)
    if options.get("sliding_window"):
        other["sliding_window"] = draw.randint(1, 40)
    return kind, options | other


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", INSTANCES)
def test_it_does_in_other_sizes(name, seed, tmp_path):
    check(made(*odd(name, seed), seed), tmp_path)


def permuted(
    tokens: torch.Tensor, predicted: int, seed: int
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """The arguments of theirs and of ours that ask for some of these tokens in a random order."""
    draw = random.Random(seed)
    length, mask = tokens.shape[1], torch.ones(*tokens.shape, tokens.shape[1])
    places = torch.tensor([draw.sample(range(length), predicted) for _ in tokens])
    order = torch.zeros_like(tokens).scatter(
        1, places, torch.arange(1, predicted + 1).expand_as(places)
    )
    for row, ranks in enumerate(order.tolist()):
        for i, own in enumerate(ranks):
            for j, other in enumerate(ranks):
                mask[row, i, j] = 0 if other == 0 or other < own else 1
    ours = {
        "inputs_BT": torch.cat((tokens, torch.full_like(places, 3)), 1),
        "positions_BT": torch.cat((torch.arange(length).expand_as(tokens), places), 1),
        "order_BT": torch.cat((order, -order.gather(1, places)), 1),
    }
    mapping = torch.nn.functional.one_hot(places, length).float()
    return {"input_ids": tokens, "perm_mask": mask, "target_mapping": mapping}, ours


@pytest.mark.parametrize("seed", SEEDS)
def test_the_two_streams_of_xlnet_give_the_same_logits(seed, tmp_path):
    kind, options = odd("xlnet", seed)
    model = made(kind, options, seed)
    model.save_pretrained(tmp_path)
    network = hub.load(tmp_path).eval()
    draw = random.Random(seed)
    tokens = torch.tensor([[draw.randint(4, 66) for _ in range(11 + 2 * seed)] for _ in range(3)])
    segments = (torch.arange(tokens.shape[1]) > 5).long().expand_as(tokens)
    theirs, ours = permuted(tokens, 4, seed)
    with torch.no_grad():
        expected = model(**theirs, token_type_ids=segments).logits
        behind = torch.gather(segments, 1, ours["positions_BT"][:, -4:])
        hidden = network(**ours, segments_BT=torch.cat((segments, behind), 1))
        assert torch.allclose(network.logits(hidden[:, -4:]), expected, atol=1e-5)
        content = network(tokens, segments_BT=segments)
        plain = model(tokens, token_type_ids=segments).logits
    assert torch.allclose(network.logits(content), plain, atol=1e-5)


WITH_HEADS = [
    ("llama-attention-bias", "LlamaForSequenceClassification"),
    ("llama-attention-bias", "LlamaForQuestionAnswering"),
    ("gemma", "GemmaForTokenClassification"),
    ("gemma3", "Gemma3TextForSequenceClassification"),
    ("mixtral", "MixtralForQuestionAnswering"),
    ("qwen3", "Qwen3ForTokenClassification"),
    ("olmo2", "Olmo2ForSequenceClassification"),
    ("smollm3", "SmolLM3ForQuestionAnswering"),
    ("phi3", "Phi3ForTokenClassification"),
    ("gpt-neox", "GPTNeoXForTokenClassification"),
    ("gpt-neox", "GPTNeoXForQuestionAnswering"),
    ("distilbert", "DistilBertForSequenceClassification"),
    ("distilbert", "DistilBertForTokenClassification"),
    ("distilbert", "DistilBertForQuestionAnswering"),
    ("albert", "AlbertForSequenceClassification"),
    ("albert", "AlbertForTokenClassification"),
    ("albert", "AlbertForQuestionAnswering"),
    ("deberta-v2", "DebertaV2ForSequenceClassification"),
    ("deberta-v2", "DebertaV2ForTokenClassification"),
    ("deberta-v2", "DebertaV2ForQuestionAnswering"),
    ("xlnet", "XLNetForSequenceClassification"),
    ("xlnet", "XLNetForTokenClassification"),
    ("xlnet", "XLNetForQuestionAnswering"),
    ("electra", "ElectraForSequenceClassification"),
    ("electra-generator", "ElectraForTokenClassification"),
    ("electra-unprojected", "ElectraForQuestionAnswering"),
    ("modernbert", "ModernBertForSequenceClassification"),
    ("modernbert", "ModernBertForTokenClassification"),
    ("modernbert", "ModernBertForQuestionAnswering"),
]


@pytest.mark.parametrize(("name", "kind"), WITH_HEADS)
def test_of_a_model_with_a_head_for_another_task_the_base_is_loaded(name, kind, tmp_path):
    labels = 2 if "Question" in kind else 3
    model = made(kind, INSTANCES[name][1] | {"num_labels": labels})
    model.save_pretrained(tmp_path)
    network = hub.load(tmp_path).eval()
    with torch.no_grad():
        states = model.base_model(INPUTS, attention_mask=SEEN).last_hidden_state
        assert torch.allclose(network(INPUTS, SEEN)[SEEN == 1], states[SEEN == 1], atol=1e-5)
        if kind.startswith(
            ("ModernBert", "Gemma3", "XLNetForQuestion")
        ):  # their heads have more layers, other names
            return
        out = model(INPUTS, attention_mask=SEEN)
        found = hub.load_headed(tmp_path).eval().scores(INPUTS, SEEN)
    expected = (
        out.logits if "logits" in out else torch.stack((out.start_logits, out.end_logits), -1)
    )
    real = SEEN == 1 if found.ndim == 3 else slice(None)
    assert torch.allclose(found[real], expected[real], atol=1e-5)
