"""Answers to rows with material to read: with it, without it, and before instruct tuning.

    uv run python benchmarks/instructions.py MODEL ROWS.jsonl --tokens 600_000

ROWS are Dolly's, `instruction`, `context` and `response`. Of held-out rows that have a context it
prints the perplexity of the answers, by the tuned model with the context and without it, and by the
model before; and of each row's mean loss the paired differences, with intervals of 95 %.
"""

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cluster.artifact import Artifact
from cluster.stage import build
from cluster.store import Store
from flows.adapting import found
from model.objectives.modules import CausalLM
from model.transformer import Transformer
from tasks.adoption.stage import AdoptSettings, adopt
from tasks.data.row_files import read_row_file
from tasks.inference.generation import load_model
from tasks.training.settings import OptimizerSettings
from tasks.tuning.instruct.engine import answer_loss, supervise
from tasks.tuning.instruct.settings import InstructSettings
from tasks.tuning.instruct.stage import instruct
from tasks.tuning.rows import Pair
from tasks.tuning.supervised import pack

Z = 1.96


def pairs(made: Artifact, with_context: bool) -> list[Pair]:
    """The held-out rows that have a context, with it or without it."""
    kept = []
    for number, row in read_row_file(made.file("heldout.jsonl")):
        if context := row["context"]:
            asked = row["instruction"]
            if not with_context:
                asked = asked.removesuffix(f"\n\n{context}")
            kept.append(Pair(row["id"], asked, row["response"], context, row["id"], number))
    return kept


def losses(model: Path, rows: Sequence[Pair]) -> dict[str, tuple[float, int]]:
    """Of each row that fits, by its id: the mean loss of its answer in nats, and its tokens."""
    network, encoder = load_model(model)
    assert isinstance(network, Transformer)
    module, context = CausalLM(network), network.config.context
    found = {}
    for row in rows:
        one = supervise([row], encoder, context)
        if one.examples:
            (example,) = one.examples
            tokens = sum(target >= 0 for target in example[1])
            found[row.id] = answer_loss(module, pack([example], context, encoder.pad)), tokens
    return found


def told(name: str, one: dict[str, tuple[float, int]], other: dict[str, tuple[float, int]]) -> str:
    """The mean paired difference of the rows that both have, with its interval."""
    both = sorted(one.keys() & other.keys())
    apart = np.array([one[row][0] - other[row][0] for row in both])
    half = Z * apart.std(ddof=1) / math.sqrt(len(apart))
    return (
        f"{name}: {apart.mean():+.4f} nats a row, 95 % from {apart.mean() - half:+.4f} to "
        f"{apart.mean() + half:+.4f}, {len(both)} rows"
    )


def perplexity(found: dict[str, tuple[float, int]]) -> float:
    """Of all tokens of all answers."""
    total = sum(loss * tokens for loss, tokens in found.values())
    return math.exp(total / sum(tokens for _, tokens in found.values()))


def main() -> None:
    """Tune, measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("rows", type=Path)
    parser.add_argument("--tokens", type=int, default=600_000)
    parser.add_argument("--batch-tokens", type=int, default=4096)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    asked, store = parser.parse_args(), Store()
    adopting = AdoptSettings(model=found(asked.model))
    model = build(adopt, store, recipe="benchmark", settings=adopting)
    settings = InstructSettings(
        data=str(asked.rows),
        tokens=asked.tokens,
        batch_tokens=asked.batch_tokens,
        optimizer=OptimizerSettings(learning_rate=asked.rate, schedule="cosine"),
    )
    tuned = build(
        instruct, store, recipe="benchmark", model=model, settings=settings, seed=asked.seed
    )
    whole, bare = pairs(tuned, with_context=True), pairs(tuned, with_context=False)
    figures = {
        "with its context": losses(tuned.path, whole),
        "without it": losses(tuned.path, bare),
        "with it, before tuning": losses(model.path, whole),
    }
    for name, one in figures.items():
        print(f"answer perplexity {name}: {perplexity(one):.2f}, {len(one)} rows")
    first, *others = figures.values()
    for name, other in zip(("less than without context", "less than before"), others, strict=True):
        print(told(name, first, other))


if __name__ == "__main__":
    main()
