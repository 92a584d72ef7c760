"""Every key of a `config.json` is read, or changes nothing; one that is missing means the same."""

import re
from contextlib import suppress
from typing import Any

import pytest

from model import hub_config
from model.counterparts import COUNTERPARTS
from tests.model.test_architectures import INSTANCES, made_config

HARMLESS = re.compile(
    r"_token_id$|_token_index$|^(dtype|use_cache|return_dict|problem_type|transformers_version)$"
    r"|^(initializer_(range|factor|cutoff_factor)|init_std|output_\w+|_name_or_path)$"
    r"|^(id2label|label2id|num_labels|task_specific_params|chunk_size_feed_forward)$"
    r"|dropout|_pdrop$|layerdrop$|^summary_|^classifier_pooling$"  # of training, or of another head
    r"|^sparse_pred|^router_jitter_noise$|^reorder_and_upcast_attn$|^pretraining_tp$|^deterministic_"
    r"|^(is_gated_act|dense_act_fn)$"  # T5 makes them of another key
    r"|^sinusoidal_pos_embds$"  # how the table begins, which the weights hold
    r"|^pooler_hidden_size$|^(start|end)_n_top$"  # of another head
    r"|^(use_mems_(train|eval)|mem_len|reuse_len|same_length)$"  # of states from before the text
    r"|^(is_encoder_decoder|is_decoder|_sliding_window_pattern)$"  # the class decides
    r"|^num_nextn_predict_layers$"  # modules that Transformers leaves out
)
"""Keys that change no logits."""
CONDITIONAL = {
    "deepseek_v3": {"head_dim", "qk_head_dim"},  # are made of others
    "falcon": {"num_kv_heads", "num_ln_in_parallel_attn", "multi_query", "parallel_attn"},
    "phi3": {"original_max_position_embeddings"},  # of a longrope
    "qwen2": {"max_window_layers"}, "qwen3": {"max_window_layers"},  # layer_types say it
    "smollm3": {"no_rope_layer_interval"},  # no_rope_layers say it
}  # fmt: skip
"""Keys that count only beside others, by model."""
CONFIGS = {
    **{name: {} for name in COUNTERPARTS},
    **{f"{name} instance": INSTANCES[name] for name in ("qwen2-windows", "qwen3", "qwen3-moe")},
    "deberta-v2": INSTANCES["deberta-v2"],
    "smollm3 instance": INSTANCES["smollm3"],
    "gemma3 instance": INSTANCES["gemma3"],
    "olmo3 instance": INSTANCES["olmo3"],
}


def file_of(name: str) -> dict[str, Any]:
    """What Transformers writes of a class's defaults, or of an instance."""
    from transformers import CONFIG_MAPPING

    config = made_config(*CONFIGS[name]) if CONFIGS[name] else CONFIG_MAPPING[name]()
    file = config.to_dict()
    return {**file, "architectures": [COUNTERPARTS[file["model_type"]].model_class]}


def others(value: Any) -> list[Any]:
    """Other values of the same type; nothing of a list or a record."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, str):
        return [value + "x"]
    if value is None:
        return [True, 3]
    return [value * 2 + 3] if isinstance(value, int | float) else []


@pytest.mark.parametrize("name", CONFIGS)
def test_no_key_that_changes_logits_goes_unread(name):
    file = file_of(name)
    shape = hub_config.parse(file)
    known = CONDITIONAL.get(file["model_type"], set())
    unread = []
    for key, value in file.items():
        if key in known or HARMLESS.search(key):
            continue
        for other in others(value):
            with suppress(ValueError, KeyError):  # refused
                unread += [key] if hub_config.parse({**file, key: other}) == shape else []
    if file.get("use_sliding_window") is False:
        unread = [key for key in unread if "sliding_window" not in key]
    assert not unread


@pytest.mark.parametrize("name", COUNTERPARTS)
def test_a_key_that_is_not_there_means_what_transformers_takes(name):
    file = file_of(name)
    shape = hub_config.parse(file)
    for key in file:
        less = {other: value for other, value in file.items() if other != key}
        with suppress(ValueError, KeyError):  # refused by its name
            assert key in ("architectures", "model_type") or hub_config.parse(less) == shape, key
