"""Losses on preferences beside TRL's (`trl`, of Hugging Face), on one batch.

    uv run --with trl python benchmarks/preference_losses.py

A small LLaMA, a reference that differs from it, and the same rows go through TRL's trainers and
through `model.objectives.preference`. Prints both losses of each kind and by how much they differ.
"""

import argparse
import importlib
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from model import hub
from model.objectives.preference import PreferenceLM, PreferenceLoss, log_probs
from model.shapes import from_depth
from model.transformer import Transformer

PAIRS, LENGTH, VOCABULARY, PAD = 4, 24, 97, 0
LOSSES: tuple[PreferenceLoss, ...] = ("dpo", "ipo", "kto", "orpo")
TRAINERS = {"kto": "KTO", "orpo": "ORPO"}
MODULES = {"ORPO": "trl.experimental.orpo"}
WANTED = [True, False, True, True]


def network(seed: int) -> Transformer:
    """A small LLaMA with logits that are not all alike."""
    torch.manual_seed(seed)
    config = from_depth(2, vocab_size=VOCABULARY, context=LENGTH, width=32, heads=2)
    made = Transformer(config)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return made


def rows(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Ids, what is no padding, and what is answer, each `[2 PAIRS, LENGTH]`; pairs lie together."""
    random = torch.Generator().manual_seed(seed)
    prompts = torch.randint(2, 8, (PAIRS,), generator=random).repeat_interleave(2)
    ends = prompts + torch.randint(2, 14, (2 * PAIRS,), generator=random)
    places = torch.arange(LENGTH)
    ids = torch.randint(1, VOCABULARY, (2 * PAIRS, LENGTH), generator=random)
    shared = places < prompts[:, None]
    ids = torch.where(shared, ids[0::2].repeat_interleave(2, 0), ids)
    used = places < ends[:, None]
    return ids.masked_fill(~used, PAD), used, used & ~shared


def batch(ids: Tensor, used: Tensor, answer: Tensor) -> dict[str, Tensor]:
    """The same rows as ours have them, `[2 PAIRS, LENGTH - 1]`."""
    following = ids[:, 1:].masked_fill(~answer[:, 1:], -100)
    inputs, documents = ids[:, :-1], (used[:, :-1] & used[:, 1:]).long()
    positions = torch.arange(LENGTH - 1).expand(inputs.shape)
    return {"inputs": inputs, "documents": documents, "positions": positions, "answers": following}


def reference(other: Transformer, made: dict[str, Tensor]) -> Tensor:
    """Log-probabilities of the answers by another network, `[2 PAIRS]`."""
    with torch.no_grad():
        hidden = other(made["inputs"], made["documents"], made["positions"])
        return log_probs(other, hidden, made["answers"])


def ours(loss: PreferenceLoss, policy: Transformer, other: Transformer, beta: float) -> float:
    """Our loss of that batch; of KTO, the second rows of the pairs are the mismatched ones."""
    made = batch(*rows())
    scored = reference(other, made)
    more: dict[str, Tensor] = {}
    if loss == "kto":
        order = torch.cat([torch.arange(0, 2 * PAIRS, 2), torch.arange(1, 2 * PAIRS, 2)])
        made, scored = {k: v[order][None] for k, v in made.items()}, scored[order][None]
        more = {"wanted": torch.tensor([WANTED])}
    else:
        made, scored = {k: v.view(PAIRS, 2, -1) for k, v in made.items()}, scored.view(PAIRS, 2)
    if loss == "orpo":
        tokens = rows()[1][0::2].sum() - PAIRS  # nothing predicts the first of a row
        more = {"token_share": (PAIRS / tokens).expand(PAIRS)}
    else:
        more["reference"] = scored
    return float(PreferenceLM(policy, loss, beta)(**made, **more).detach())


def theirs(loss: PreferenceLoss, folder: Path, beta: float) -> float:
    """TRL's loss of the same batch."""
    ids, used, answer = (t.long() for t in rows())
    first, second = slice(0, None, 2), slice(1, None, 2)
    trainer = _trainer(loss, folder, beta)
    if loss == "kto":
        given: dict[str, Any] = {"label": torch.tensor(WANTED)}
        for prefix, half in (("", first), ("KL_", second)):
            given[f"{prefix}input_ids"] = ids[half]
            given[f"{prefix}attention_mask"] = used[half]
            given[f"{prefix}completion_mask"] = answer[half]
        return float(trainer._compute_loss(trainer.model, given, False))
    if loss == "orpo":
        given = {}
        for name, half in (("chosen", first), ("rejected", second)):
            given[f"{name}_input_ids"] = ids[half]
            given[f"{name}_attention_mask"] = used[half]
            given[f"{name}_labels"] = ids[half].masked_fill(answer[half] == 0, -100)
        return float(trainer.get_batch_loss_metrics(trainer.model, given)[0])
    both = [torch.cat([t[first], t[second]]) for t in (ids, used, answer)]
    names = ("input_ids", "attention_mask", "completion_mask")
    return float(trainer._compute_loss(trainer.model, dict(zip(names, both, strict=True)), False))


def _trainer(loss: PreferenceLoss, folder: Path, beta: float) -> Any:
    """A trainer of TRL's, with rows of its own to be made with."""
    from datasets import Dataset
    from tokenizers import Tokenizer, models
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({"<pad>": 0, "</s>": 1, "<unk>": 2}, unk_token="<unk>"))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    )
    name = TRAINERS.get(loss, "DPO")
    library = importlib.import_module(MODULES.get(name, "trl"))
    kind: dict[str, Any] = (
        {"loss_type": {"dpo": "sigmoid"}.get(loss, loss)} if name == "DPO" else {}
    )
    row: dict[str, Any] = {"prompt": "a", "chosen": " b", "rejected": " c"}
    if loss == "kto":
        row = {"prompt": "a", "completion": " b", "label": True}
    arguments = getattr(library, f"{name}Config")(
        output_dir=str(folder / "out"), beta=beta, report_to=[], use_cpu=True, bf16=False, **kind
    )
    model, ref_model = (
        AutoModelForCausalLM.from_pretrained(folder / name, dtype=torch.float32).eval()
        for name in ("policy", "reference")
    )
    given = {} if loss == "orpo" else {"ref_model": ref_model}
    return getattr(library, f"{name}Trainer")(
        model=model,
        args=arguments,
        train_dataset=Dataset.from_list([row] * 8),
        processing_class=tokenizer,
        **given,
    )


def main() -> None:
    """Compare them."""
    from fairness import need

    need(trl="trl==1.16.0")
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--beta", type=float, default=0.2)
    beta = parser.parse_args().beta
    policy, other = network(0), network(1)
    with tempfile.TemporaryDirectory() as made:
        for name, saved in (("policy", policy), ("reference", other)):
            hub.save(Path(made) / name, saved)
        for loss in LOSSES:
            mine, others = ours(loss, policy, other, beta), theirs(loss, Path(made), beta)
            print(f"{loss:5} ours {mine:.7f} trl {others:.7f} difference {abs(mine - others):.1e}")


if __name__ == "__main__":
    main()
