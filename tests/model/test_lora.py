"""Adapters: nothing at first, the same in PEFT, in the weights and out of them again."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from model import hub, hub_config
from model.encoder_decoder import EncoderDecoder
from model.hub_lora import (
    ADAPTER,
    ADAPTER_CONFIG,
    MATRICES,
    add_lora,
    load_adapter,
    save_adapter,
)
from model.lora import LoraLinear, LoraShape, adapted, fold, merged
from model.objectives.base import Network
from tests.model.test_hub import BASE, EXPORTED, OWN, random_network

IDS = torch.arange(3, 14)[None]
SHAPE = LoraShape(rank=3, alpha=5.0)


@torch.no_grad()
def logits(network: Network) -> torch.Tensor:
    if isinstance(network, EncoderDecoder):
        return network.logits(network(IDS, IDS[:, :7]))
    return network.logits(network(IDS))


@torch.no_grad()
def trained(config: Any, matrices: Any = MATRICES) -> tuple[Network, str]:
    """A network whose adapters are no longer nothing."""
    network, model_type = random_network(config), hub_config.model_type(config)
    before = logits(network)
    add_lora(network, model_type, SHAPE, matrices)
    assert torch.equal(logits(network), before), "they begin as nothing"
    for _, layer in adapted(network):
        for up in layer.lora_B.values():
            up.weight.normal_(std=0.2)
    assert not torch.allclose(logits(network), before, atol=1e-3)
    return network, model_type


SHAPES = {name: config for name, (config, _) in EXPORTED.items() if "base" not in name}


@pytest.mark.parametrize("name", ["llama-tied", "gpt2", "falcon-7b", "falcon-40b", "deepseek-v3",
                                  "bert", "gemma2", "t5", "bart"])  # fmt: skip
def test_peft_loads_them_and_gives_the_same_logits(name: str, tmp_path: Path) -> None:
    peft, transformers = (pytest.importorskip(m) for m in ("peft", "transformers"))
    network, model_type = trained(SHAPES[name])
    hub.save(tmp_path / "base", hub_without_adapters(network))
    save_adapter(tmp_path / "adapter", network, model_type, tmp_path / "base")
    kind = getattr(transformers, EXPORTED[name][1])
    theirs = peft.PeftModel.from_pretrained(
        kind.from_pretrained(tmp_path / "base"), tmp_path / "adapter"
    ).eval()
    decoder = {"decoder_input_ids": IDS[:, :7]} if isinstance(network, EncoderDecoder) else {}
    with torch.no_grad():
        torch.testing.assert_close(
            logits(network), theirs(IDS, **decoder).logits, atol=1e-5, rtol=1e-5
        )


def test_adapters_of_peft_are_loaded_some_matrices_only(tmp_path: Path) -> None:
    peft, transformers = (pytest.importorskip(m) for m in ("peft", "transformers"))
    network = random_network(BASE)
    hub.save(tmp_path / "base", network)
    how = {"r": 4, "lora_alpha": 6, "use_rslora": True, "target_modules": ["q_proj", "up_proj"]}
    theirs = peft.get_peft_model(
        transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "base"),
        peft.LoraConfig(**how, init_lora_weights=False),
    ).eval()
    theirs.save_pretrained(tmp_path / "adapter")
    load_adapter(tmp_path / "adapter", network, "llama")
    with torch.no_grad():
        expected = theirs(IDS).logits
    torch.testing.assert_close(logits(network), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "name",
    ["llama-biased", "gpt2", "falcon-40b", "deepseek-v3", "bert", "t5", "bart", *list(OWN)[:3]],
)
def test_merged_they_say_the_same_and_leave_no_trace(name: str, tmp_path: Path) -> None:
    network, model_type = trained(SHAPES.get(name) or OWN[name])
    apart, weights = logits(network), {k: v.clone() for k, v in network.state_dict().items()}
    with merged(network):
        torch.testing.assert_close(logits(network), apart, atol=1e-5, rtol=1e-5)
        hub.save(tmp_path / "whole", network)
    assert all(torch.equal(weights[k], v) for k, v in network.state_dict().items())
    torch.testing.assert_close(
        logits(hub.load(tmp_path / "whole").eval()), apart, atol=1e-5, rtol=1e-5
    )
    hub.save(tmp_path / "base", network)
    save_adapter(tmp_path / "adapter", network, model_type, tmp_path / "base")
    found = hub.load(tmp_path / "base").eval()
    load_adapter(tmp_path / "adapter", found, model_type)
    torch.testing.assert_close(logits(found), apart, atol=1e-5, rtol=1e-5)
    fold(found)
    assert not adapted(found)
    torch.testing.assert_close(logits(found), apart, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"use_dora": True}, "use_dora is True; it must be False"),
        ({"peft_type": "IA3"}, "peft_type is 'IA3'"),
        ({"modules_to_save": ["score"]}, "modules_to_save"),
    ],
)
def test_adapters_of_another_kind_are_refused(
    change: dict[str, Any], said: str, tmp_path: Path
) -> None:
    network, model_type = trained(BASE)
    save_adapter(tmp_path, network, model_type, tmp_path)
    about = json.loads((tmp_path / ADAPTER_CONFIG).read_text()) | change
    (tmp_path / ADAPTER_CONFIG).write_text(json.dumps(about))
    with pytest.raises(ValueError, match=said):
        load_adapter(tmp_path, random_network(BASE), model_type)


def test_adapters_of_another_network_are_refused(tmp_path: Path) -> None:
    network, model_type = trained(BASE)
    save_adapter(tmp_path, network, model_type, tmp_path)
    found = load_file(tmp_path / ADAPTER)
    found["base_model.model.model.layers.9.self_attn.q_proj.lora_A.weight"] = torch.zeros(3, 32)
    save_file(found, tmp_path / ADAPTER)
    with pytest.raises(ValueError, match=r"layers\.9"):
        load_adapter(tmp_path, random_network(BASE), model_type)


def hub_without_adapters(network: Network) -> Network:
    """The network that the adapters belong to."""
    plain = random_network(network.config)
    own = plain.state_dict()
    plain.load_state_dict({k: v for k, v in network.state_dict().items() if k in own})
    return plain


def test_a_folder_of_adapters_is_a_model_through_its_base(tmp_path: Path) -> None:
    network, model_type = trained(BASE)
    hub.save(tmp_path / "base", hub_without_adapters(network))
    save_adapter(tmp_path / "adapter", network, model_type, tmp_path / "base")
    found = hub.load(tmp_path / "adapter").eval()
    torch.testing.assert_close(logits(found), logits(network), atol=1e-5, rtol=1e-5)
    assert hub.read_config(tmp_path / "adapter")["model_type"] == "llama"
    (tmp_path / "base").rename(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="write the path of theirs as base_model_name_or_path"):
        hub.load(tmp_path / "adapter")


def test_a_matrix_in_4_bits_multiplies_as_what_they_stand_for() -> None:
    """Forward and backward, and with its adapters in it; at a seventh of the bytes."""
    pytest.importorskip("bitsandbytes")
    torch.manual_seed(0)
    linear, x = torch.nn.Linear(192, 128), torch.randn(3, 5, 192)
    shape = LoraShape(rank=3, alpha=5.0, in_4_bits=True)
    layer = LoraLinear(linear, (64, 64), (1,), shape)
    assert layer.weight.nbytes < linear.weight.nbytes / 7
    torch.nn.init.normal_(layer.lora_B["1"].weight)
    layer.merge()
    whole, expected = layer.weight.detach(), layer(x)
    layer.unmerge()
    torch.testing.assert_close(layer(x), expected, rtol=1e-4, atol=1e-4)
    found = torch.autograd.grad(layer(x.requires_grad_()).sum(), x)[0]
    torch.testing.assert_close(found, whole.sum(0).expand_as(x), rtol=1e-4, atol=1e-4)
