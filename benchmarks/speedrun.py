"""GPT-2's 124M shape from text at hand to a loss of text held out: wall time and energy, on a GPU.

    uv run python benchmarks/speedrun.py texts.jsonl.zst [--goal 3.28] [--tokens 1_000_000_000]
                                         [--set pretrain.optimizer.name=muon]...

`headrace pretrain` does all of it: tokenizer, shards, the training and the held-out loss, in nats a
token of a vocabulary of 50,304. Time and energy are those of the whole command; of the training
alone there is the time too. With another text or tokenizer it is another race: compare on your own.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

from cluster.energy import reading

RECIPE = {
    "name": "speedrun",
    "filters": {"preset": "basic"},
    "tokenizer": {"vocab_size": 50_304},
    "model": {"preset": "gpt2"},
    "pretrain": {
        "context": 1024,
        "batch_tokens": 512 * 1024,
        "precision": "bf16",
        "optimizer": {"learning_rate": 1.8e-3, "betas": [0.9, 0.95]},
    },
    "evaluate": {"heldout": {"max_tokens": 2_000_000}},
    "placement": {"gpus": 1, "compile": True, "micro_batch_tokens": 64 * 1024},
}


def main() -> None:
    """Train, and print one JSON object; the exit status is 1 where the goal was missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", type=Path, help="what `sources.path` of a recipe takes")
    parser.add_argument("--goal", type=float, default=3.28, help="held-out loss, nats a token")
    parser.add_argument("--tokens", type=int, default=1_000_000_000)
    parser.add_argument("--set", action="append", default=[], help="another value in the recipe")
    options = parser.parse_args()
    recipe = RECIPE | {"sources": [{"path": str(options.text.resolve())}]}
    recipe["pretrain"] = RECIPE["pretrain"] | {"tokens": options.tokens}
    with tempfile.TemporaryDirectory(prefix="hr-") as folder:
        path = Path(folder, "recipe.yaml")
        path.write_text(yaml.safe_dump(recipe))
        before, started = reading(), time.monotonic()
        metrics = pretrain(path, Path(folder, "home"), options.set)
        seconds = time.monotonic() - started
        joules = before.joules_since(seconds)
    loss = metrics["heldout_loss"]
    print(
        json.dumps(
            {
                "loss": loss,
                "goal": options.goal,
                "tokens": options.tokens,
                "seconds": round(seconds, 1),
                "train_seconds": metrics["train_seconds"],
                "joules": joules,
                "mfu": metrics.get("mfu"),
            }
        )
    )
    sys.exit(0 if loss <= options.goal else 1)


def pretrain(recipe: Path, home: Path, overrides: list[str]) -> dict[str, float]:
    """The metrics of `headrace pretrain` in a home of its own."""
    command = [sys.executable, "-m", "flows.cli"]
    environment = os.environ | {"HEADRACE_HOME": str(home)}
    sets = [word for override in overrides for word in ("--set", override)]
    try:
        told = subprocess.run(
            [*command, "pretrain", str(recipe), "--json", *sets],
            env=environment,
            stdout=subprocess.PIPE,
            check=True,
            text=True,
        )
    finally:
        subprocess.run([*command, "down"], env=environment, stdout=subprocess.DEVNULL, check=False)
    return json.loads(told.stdout)["metrics"]


if __name__ == "__main__":
    main()
