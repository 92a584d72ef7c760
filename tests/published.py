"""A model folder as published ones are: weights in shards, a padded vocabulary, a tokenizer, marks
and a chat template of its own.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from model import hub
from model.config import ModelConfig
from model.transformer import Transformer

TOKENS, PADDED = 300, 320
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}[{{ m['role'] }}] {{ m['content'] | trim }}</s>\n"
    "{% endfor %}{% if add_generation_prompt %}[assistant] {% endif %}"
)


def published_folder(folder: Path, dtype: torch.dtype = torch.float32) -> Path:
    """Such a folder. An id that no token has is the likeliest everywhere."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    sizes = {"width": 16, "depth": 2, "heads": 2, "kv_heads": 1, "head_dim": 8, "ffn_width": 32}
    network = Transformer(
        ModelConfig(vocab_size=PADDED, context=128, tie_embeddings=False, **sizes)
    )
    with torch.no_grad():
        network.head.weight[-2:] = 100 * network.head.weight[:1]
        network.head.weight[-1] *= -1
    hub.save(folder, network.to(dtype), {"bos_token_id": 1, "eos_token_id": 2})
    _split(folder)
    _tokenizer().save(str(folder / "tokenizer.json"))
    marks = {
        "bos_token": {"__type": "AddedToken", "content": "<s>"},
        "eos_token": "</s>",
        "unk_token": "<unk>",
    }
    _write(
        folder / "tokenizer_config.json", {**marks, "tokenizer_class": "PreTrainedTokenizerFast"}
    )
    _write(folder / "generation_config.json", {"eos_token_id": [2, 3]})
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    (folder / "README.md").write_text("---\nlicense: mit\n---\n# A model\n")
    return folder


def _split(folder: Path) -> None:
    """The weights in two files with an index; the file beside them holds none."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    files = {name: f"model-0000{1 + n % 2}-of-00002.safetensors" for n, name in enumerate(tensors)}
    for file in set(files.values()):
        save_file({n: tensors[n] for n, where in files.items() if where == file}, folder / file)
    _write(folder / "model.safetensors.index.json", {"metadata": {}, "weight_map": files})
    save_file({"lora": torch.zeros(1)}, folder / "adapter_model.safetensors")


def _tokenizer() -> Tokenizer:
    found = Tokenizer(models.BPE(unk_token="<unk>"))
    found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    found.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    marks = ["<unk>", "<s>", "</s>", "<|end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=TOKENS, special_tokens=marks, initial_alphabet=alphabet, show_progress=False
    )
    found.train_from_iterator(["say the numbers one two three again and again"] * 20, trainer)
    found.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)]
    )
    return found


def _write(path: Path, content: object) -> None:
    path.write_text(json.dumps(content))
