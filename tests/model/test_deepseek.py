"""The blocks of DeepSeek-V3, latent attention and experts, against those of transformers."""

import pytest
import torch

from model.config import ExpertConfig, LatentConfig, ModelConfig, RopeScaling
from model.transformer import Transformer

CONFIG = ModelConfig(
    vocab_size=61,
    context=64,
    width=32,
    depth=3,
    heads=4,
    kv_heads=4,
    head_dim=12,
    ffn_width=48,
    norm_epsilon=1e-6,
    latent=LatentConfig(kv_rank=16, query_rank=24, rope_dim=4, value_dim=8),
    experts=ExpertConfig(
        routed=8, active=3, width=16, shared=1, dense_layers=1, scoring="sigmoid", groups=4,
        active_groups=2, scale=2.5, balance_loss=0.0, balance_bias=1e-3,
    ),
    rope_scaling=RopeScaling(
        kind="yarn", factor=4.0, low_frequency_factor=1.0, high_frequency_factor=32.0,
        original_context=16, attention_factor=1.0,
    ),
    attention_scale=12**-0.5 * (0.1 * 1.0 * 1.3862943611198906 + 1) ** 2,
    tie_embeddings=False,
)  # fmt: skip


@pytest.fixture(scope="module")
def theirs():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.DeepseekV3Config(
        vocab_size=61, hidden_size=32, intermediate_size=48, moe_intermediate_size=16,
        num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=4, n_shared_experts=1,
        n_routed_experts=8, routed_scaling_factor=2.5, kv_lora_rank=16, q_lora_rank=24,
        qk_rope_head_dim=4, v_head_dim=8, qk_nope_head_dim=8, n_group=4, topk_group=2,
        num_experts_per_tok=3, first_k_dense_replace=1, norm_topk_prob=True,
        max_position_embeddings=64, rms_norm_eps=1e-6, rope_interleave=False,
        rope_parameters={
            "rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0, "beta_fast": 32.0,
            "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
            "original_max_position_embeddings": 16,
        },
    )  # fmt: skip
    network = transformers.DeepseekV3ForCausalLM(config).eval()
    for name, tensor in [*network.named_parameters(), *network.named_buffers()]:
        if "inv_freq" not in name:
            torch.nn.init.normal_(tensor, mean=float(tensor.ndim == 1), std=0.2)
    return network


def renamed(theirs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Their tensors under our names."""
    plain = {
        "embedding.weight": "model.embed_tokens.weight",
        "norm.weight": "model.norm.weight",
        "head.weight": "lm_head.weight",
    }
    each = {
        "attention.norm": "input_layernorm",
        "attention.inner.query_compress": "self_attn.q_a_proj",
        "attention.inner.query_norm": "self_attn.q_a_layernorm",
        "attention.inner.query": "self_attn.q_b_proj",
        "attention.inner.kv_compress": "self_attn.kv_a_proj_with_mqa",
        "attention.inner.kv_norm": "self_attn.kv_a_layernorm",
        "attention.inner.kv": "self_attn.kv_b_proj",
        "attention.inner.out": "self_attn.o_proj",
        "feedforward.norm": "post_attention_layernorm",
    }
    ours = {name: theirs[other] for name, other in plain.items()}
    for layer in range(3):
        here, there = f"blocks.{layer}", f"model.layers.{layer}"
        ours |= {f"{here}.{a}.weight": theirs[f"{there}.{b}.weight"] for a, b in each.items()}
        here, there = f"{here}.feedforward.inner", f"{there}.mlp"
        dense = f"{there}.shared_experts" if layer else there
        gate, up, down = (theirs[f"{dense}.{x}_proj.weight"] for x in ("gate", "up", "down"))
        prefix = f"{here}.shared" if layer else here
        ours |= {f"{prefix}.up.weight": torch.cat((gate, up)), f"{prefix}.down.weight": down}
        if layer:
            ours |= {
                f"{here}.up": theirs[f"{there}.experts.gate_up_proj"],
                f"{here}.down": theirs[f"{there}.experts.down_proj"],
                f"{here}.router.gate.weight": theirs[f"{there}.gate.weight"],
                f"{here}.router.bias": theirs[f"{there}.gate.e_score_correction_bias"],
            }
    return ours


def test_the_logits_are_those_of_transformers(theirs):
    ours = Transformer(CONFIG).eval()
    ours.load_state_dict(renamed(theirs.state_dict()))
    inputs = torch.randint(0, 61, (2, 40), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = theirs(inputs).logits
        found = ours.logits(ours(inputs))
    assert expected.std() > 0.1
    assert torch.allclose(found, expected, atol=1e-4)
