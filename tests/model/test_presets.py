"""Published models: their parameter counts, and their shapes as they are built."""

import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from model.encoder_decoder import build
from model.flops import active_parameter_count, parameter_count, trained_parameter_count
from model.hub_config import describe, model_type, parse
from model.presets import PRESETS, preset

# The tensors of the hub's checkpoint, tied ones once: decoders with their LM head, encoders with
# their pooler and without their LM head (that is what its base classes load).
EXACT = {
    "t5-small": (60_506_624, "google-t5/t5-small"),
    "t5-base": (222_903_552, "google-t5/t5-base"),
    "t5-large": (737_668_096, "google-t5/t5-large"),
    "t5-3b": (2_851_598_336, "google-t5/t5-3b"),
    "t5-11b": (11_307_321_344, "google-t5/t5-11b"),
    "bart-base": (139_420_416, "facebook/bart-base"),
    "bart-large": (406_291_456, "facebook/bart-large"),
    "bert-base-uncased": (109_482_240, "google-bert/bert-base-uncased"),
    "bert-large-uncased": (335_141_888, "google-bert/bert-large-uncased"),
    "bert-base-cased": (108_310_272, "google-bert/bert-base-cased"),
    "bert-large-cased": (333_579_264, "google-bert/bert-large-cased"),
    "roberta-base": (124_645_632, "FacebookAI/roberta-base"),
    "roberta-large": (355_359_744, "FacebookAI/roberta-large"),
    "xlm-roberta-base": (278_043_648, "FacebookAI/xlm-roberta-base"),
    "xlm-roberta-large": (559_890_432, "FacebookAI/xlm-roberta-large"),
    "distilbert-base-uncased": (66_362_880, "distilbert/distilbert-base-uncased"),
    "distilbert-base-cased": (65_190_912, "distilbert/distilbert-base-cased"),
    "albert-base-v2": (11_683_584, "albert/albert-base-v2"),
    "albert-large-v2": (17_683_968, "albert/albert-large-v2"),
    "albert-xlarge-v2": (58_724_864, "albert/albert-xlarge-v2"),
    "albert-xxlarge-v2": (222_595_584, "albert/albert-xxlarge-v2"),
    "electra-small-discriminator": (13_483_008, "google/electra-small-discriminator, its base"),
    "electra-base-discriminator": (108_891_648, "google/electra-base-discriminator, its base"),
    "electra-large-discriminator": (334_092_288, "google/electra-large-discriminator, its base"),
    "deberta-v3-xsmall": (70_682_112, "microsoft/deberta-v3-xsmall, its base"),
    "deberta-v3-small": (141_304_320, "microsoft/deberta-v3-small, its base"),
    "deberta-v3-base": (183_831_552, "microsoft/deberta-v3-base, its base"),
    "deberta-v3-large": (434_012_160, "microsoft/deberta-v3-large, its base"),
    "mdeberta-v3-base": (278_218_752, "microsoft/mdeberta-v3-base, its base"),
    "xlnet-base-cased": (116_718_336, "xlnet/xlnet-base-cased, its base"),
    "xlnet-large-cased": (360_268_800, "xlnet/xlnet-large-cased, its base"),
    "openai-gpt": (116_534_784, "openai-community/openai-gpt"),
    "gpt2": (124_439_808, "openai-community/gpt2"),
    "gpt2-medium": (354_823_168, "openai-community/gpt2-medium"),
    "gpt2-large": (774_030_080, "openai-community/gpt2-large"),
    "gpt2-xl": (1_557_611_200, "openai-community/gpt2-xl"),
    "llama-2-7b": (6_738_415_616, "meta-llama/Llama-2-7b-hf"),
    "llama-2-13b": (13_015_864_320, "meta-llama/Llama-2-13b-hf"),
    "llama-2-70b": (68_976_648_192, "meta-llama/Llama-2-70b-hf"),
    "llama-3.1-8b": (8_030_261_248, "meta-llama/Llama-3.1-8B"),
    "llama-3.1-70b": (70_553_706_496, "meta-llama/Llama-3.1-70B"),
    "llama-3.1-405b": (405_853_388_800, "meta-llama/Llama-3.1-405B"),
    "mistral-7b": (7_241_732_096, "mistralai/Mistral-7B-v0.1"),
    "qwen2.5-0.5b": (494_032_768, "Qwen/Qwen2.5-0.5B"),
    "qwen2.5-1.5b": (1_543_714_304, "Qwen/Qwen2.5-1.5B"),
    "qwen2.5-3b": (3_085_938_688, "Qwen/Qwen2.5-3B"),
    "qwen2.5-7b": (7_615_616_512, "Qwen/Qwen2.5-7B"),
    "qwen2.5-14b": (14_770_033_664, "Qwen/Qwen2.5-14B"),
    "qwen2.5-32b": (32_763_876_352, "Qwen/Qwen2.5-32B"),
    "qwen2.5-72b": (72_706_203_648, "Qwen/Qwen2.5-72B"),
    "gemma-2-2b": (2_614_341_888, "google/gemma-2-2b"),
    "gemma-2-9b": (9_241_705_984, "google/gemma-2-9b"),
    "gemma-2-27b": (27_227_128_320, "google/gemma-2-27b"),
    "mixtral-8x7b": (46_702_792_704, "mistralai/Mixtral-8x7B-v0.1"),
    "qwen3-0.6b": (596_049_920, "Qwen/Qwen3-0.6B"),
    "qwen3-1.7b": (1_720_574_976, "Qwen/Qwen3-1.7B"),
    "qwen3-8b": (8_190_735_360, "Qwen/Qwen3-8B"),
    "qwen3-30b-a3b": (30_532_122_624, "Qwen/Qwen3-30B-A3B"),
    "gemma-2b": (2_506_172_416, "google/gemma-2b"),
    "gemma-7b": (8_537_680_896, "google/gemma-7b"),
    "gemma-3-270m": (268_098_176, "google/gemma-3-270m"),
    "gemma-3-1b": (999_885_952, "google/gemma-3-1b-pt"),
    "olmo-2-1b": (1_484_916_736, "allenai/OLMo-2-0425-1B"),
    "olmo-2-7b": (7_298_617_344, "allenai/OLMo-2-1124-7B"),
    "smollm3-3b": (3_075_098_624, "HuggingFaceTB/SmolLM3-3B"),
    "phi-3-mini-4k": (3_821_079_552, "microsoft/Phi-3-mini-4k-instruct"),
    "pythia-70m": (70_426_624, "EleutherAI/pythia-70m"),
    "pythia-160m": (162_322_944, "EleutherAI/pythia-160m"),
    "pythia-410m": (405_334_016, "EleutherAI/pythia-410m"),
    "pythia-1b": (1_011_781_632, "EleutherAI/pythia-1b"),
    "pythia-1.4b": (1_414_647_808, "EleutherAI/pythia-1.4b"),
    "pythia-2.8b": (2_775_208_960, "EleutherAI/pythia-2.8b"),
    "pythia-6.9b": (6_857_302_016, "EleutherAI/pythia-6.9b"),
    "pythia-12b": (11_846_072_320, "EleutherAI/pythia-12b"),
    "modernbert-base": (149_014_272, "answerdotai/ModernBERT-base, without its head"),
    "modernbert-large": (394_781_696, "answerdotai/ModernBERT-large, without its head"),
    "t5-v1_1-small": (76_961_152, "google/t5-v1_1-small"),
    "t5-v1_1-base": (247_577_856, "google/t5-v1_1-base"),
    "t5-v1_1-large": (783_150_080, "google/t5-v1_1-large"),
    "mt5-small": (300_176_768, "google/mt5-small"),
    "mt5-base": (582_401_280, "google/mt5-base"),
    "falcon-7b": (6_921_720_704, "tiiuae/falcon-7b"),
    "falcon-40b": (41_303_293_952, "tiiuae/falcon-40b"),
    "falcon-180b": (178_557_088_768, "tiiuae/falcon-180B"),
    "deepseek-v3": (671_026_404_352, "deepseek-ai/DeepSeek-V3, without its multi-token module"),
}
# Rounded where they were published.
ROUNDED = {
    "transformer-base": (65e6, "Vaswani et al. 2017, table 3"),
    "transformer-big": (213e6, "Vaswani et al. 2017, table 3"),
    "gpt3-125m": (125e6, "Brown et al. 2020, table 2.1"),
    "gpt3-350m": (350e6, "Brown et al. 2020, table 2.1"),
    "gpt3-760m": (760e6, "Brown et al. 2020, table 2.1"),
    "gpt3-1.3b": (1.3e9, "Brown et al. 2020, table 2.1"),
    "gpt3-2.7b": (2.7e9, "Brown et al. 2020, table 2.1"),
    "gpt3-6.7b": (6.7e9, "Brown et al. 2020, table 2.1"),
    "gpt3-13b": (13e9, "Brown et al. 2020, table 2.1"),
    "gpt3-175b": (175e9, "Brown et al. 2020, table 2.1"),
}
# Layers, width, heads, key-value heads as printed in the papers' tables.
SHAPES = {
    "transformer-base": (6, 512, 8, 8), "transformer-big": (6, 1024, 16, 16),
    "openai-gpt": (12, 768, 12, 12), "gpt2-xl": (48, 1600, 25, 25),
    "gpt3-175b": (96, 12288, 96, 96),
    "llama-2-7b": (32, 4096, 32, 32), "llama-2-13b": (40, 5120, 40, 40),
    "llama-2-70b": (80, 8192, 64, 8), "llama-3.1-8b": (32, 4096, 32, 8),
    "llama-3.1-70b": (80, 8192, 64, 8), "llama-3.1-405b": (126, 16384, 128, 8),
    "gemma-2-2b": (26, 2304, 8, 4), "gemma-2-9b": (42, 3584, 16, 8),
    "gemma-2-27b": (46, 4608, 32, 16), "qwen2.5-0.5b": (24, 896, 14, 2),
    "qwen2.5-7b": (28, 3584, 28, 4), "qwen2.5-72b": (80, 8192, 64, 8),
    "deepseek-v3": (61, 7168, 128, 128), "falcon-7b": (32, 4544, 71, 1),
    "falcon-40b": (60, 8192, 128, 8), "falcon-180b": (80, 14848, 232, 8),
    "mistral-7b": (32, 4096, 32, 8), "bert-base-uncased": (12, 768, 12, 12),
    "bert-large-uncased": (24, 1024, 16, 16),
}  # fmt: skip


def test_every_preset_has_a_published_count():
    assert set(PRESETS) == EXACT.keys() | ROUNDED.keys()


@pytest.mark.parametrize("name", EXACT)
def test_presets_have_the_published_parameter_counts(name):
    assert parameter_count(preset(name)) == EXACT[name][0]


@pytest.mark.parametrize("name", ROUNDED)
def test_presets_have_the_rounded_counts_to_two_percent(name):
    assert parameter_count(preset(name)) == pytest.approx(ROUNDED[name][0], rel=0.02)


@pytest.mark.parametrize("name", SHAPES)
def test_presets_have_the_published_shapes(name):
    config = preset(name)
    assert (config.depth, config.width, config.heads, config.kv_heads) == SHAPES[name]


@pytest.mark.parametrize("name", PRESETS)
def test_the_closed_form_is_the_sum_over_the_built_module(name):
    with torch.device("meta"):
        network = build(preset(name))
    assert trained_parameter_count(preset(name)) == sum(p.numel() for p in network.parameters())
    own = sum(
        p.numel() for n, p in network.named_parameters() if n.startswith(("head_", "detector"))
    )
    assert parameter_count(preset(name)) == trained_parameter_count(preset(name)) - own


def test_of_deepseek_37_billion_parameters_are_active_and_a_multi_token_module_is_11_more():
    config = preset("deepseek-v3")
    assert active_parameter_count(config) == pytest.approx(37e9, rel=0.02)
    further = replace(config, multi_token=1)
    assert parameter_count(further) - parameter_count(config) == pytest.approx(11.5e9, rel=0.01)
    with torch.device("meta"):
        network = build(replace(further, depth=4))
    assert parameter_count(replace(further, depth=4)) == sum(
        p.numel() for p in network.parameters()
    )


KINDS = {
    "transformer": "headrace", "openai": "openai-gpt", "gpt2": "gpt2", "gpt3": "gpt2",
    "llama": "llama", "mistral": "mistral", "qwen2.5": "qwen2", "gemma": "gemma",
    "gemma-2-": "gemma2", "gemma-3": "gemma3_text", "mixtral": "mixtral", "qwen3": "qwen3",
    "qwen3-30b": "qwen3_moe", "olmo-2": "olmo2", "smollm3": "smollm3", "phi-3": "mistral",
    "pythia": "gpt_neox", "modernbert": "modernbert", "mt5": "t5",
    "falcon": "falcon", "deepseek": "deepseek_v3", "bert": "bert", "roberta": "roberta",
    "xlm": "roberta", "electra": "electra", "distilbert": "distilbert",
    "albert": "albert", "deberta": "deberta-v2", "mdeberta": "deberta-v2", "xlnet": "xlnet",
    "t5": "t5", "bart": "bart",
}  # fmt: skip


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_known_to_transformers_and_come_back_from_its_config(name):
    kind = model_type(preset(name))
    odd = name == "gpt3-13b"  # its width of 5140 is not 40 heads of 128, which GPT-2 must have
    family = max((start for start in KINDS if name.startswith(start)), key=len)
    assert kind == ("headrace" if odd else KINDS[family])
    assert parse(describe(preset(name), kind)) == preset(name)


def test_an_unknown_preset_names_the_known_ones():
    with pytest.raises(ValueError, match=r"model\.preset is 'gpt5'; it must be one of .*gpt2, "):
        preset("gpt5")


def test_counting_does_not_import_torch():
    code = (
        "import sys, model.presets, model.flops, model.hub_config\n"
        "print('torch' in sys.modules or 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
