"""tinyshakespeare by characters, in nanoGPT's small setting for CPUs: 1.88 after 2,000 steps there.

    uv run python benchmarks/tinyshakespeare.py input.txt [--set pretrain.optimizer.name=muon]...

As in nanoGPT's README the network is GPT-2's shape with 4 layers, 4 heads and width 128, the
context is 64, a batch 12 samples, and there are 2,000 of them; the first nine tenths of the text
are learnt from, the last tenth is held out. `headrace pretrain` does all of it. The text is ASCII,
so the 256 bytes of the vocabulary are its characters, and no two are merged. The figure is the mean
loss in nats of every held-out character, of each window of 64 from its first on.
"""

import argparse
import io
import sys
import tempfile
from pathlib import Path

import yaml
import zstandard
from speedrun import pretrain

from tasks.tokens.shards.encode import heldout

GOAL, HELD_OUT, STEPS, SAMPLES, CONTEXT = 1.88, 0.1, 2000, 12, 64
RECIPE = {
    "name": "tinyshakespeare",
    "filters": {"preset": "basic"},
    "dedup": {"exact": False, "fuzzy": False},
    "redact": {"kinds": []},
    "tokenizer": {"vocab_size": 260},
    "model": {"preset": "gpt2", "depth": 4, "width": 128, "heads": 4},
    "pretrain": {
        "context": CONTEXT,
        "batch_tokens": SAMPLES * CONTEXT,
        "tokens": STEPS * SAMPLES * CONTEXT,
        "optimizer": {
            "learning_rate": 3e-3,
            "schedule": "cosine",
            "warmup_steps": 100,
            "final_share": 0.1,
        },
    },
    "evaluate": {"heldout": {"max_tokens": 1_000_000}},
}


def main() -> None:
    """Train, and print the held-out loss beside nanoGPT's."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", type=Path, help="tinyshakespeare, plain or .zst")
    parser.add_argument("--set", action="append", default=[], help="another value in the recipe")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hr-") as folder:
        recipe = written(Path(folder), whole(options.text))
        metrics = pretrain(recipe, Path(folder, "home"), options.set)
    loss = metrics["heldout_loss"]
    print(f"held-out loss {loss:.4f}; nanoGPT's {GOAL} after {STEPS} steps")
    sys.exit(0 if loss <= GOAL else 1)


def whole(path: Path) -> str:
    """The text of a file."""
    data = path.read_bytes()
    if path.suffix == ".zst":
        data = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data)).read()
    text = data.decode()
    assert text.isascii(), "a character is a byte here"
    return text


def written(folder: Path, text: str) -> Path:
    """The file of a recipe with two documents, of which the second is held out."""
    cut = round(len(text) * (1 - HELD_OUT))
    known, unknown = text[:cut], text[cut:]
    while not (share := share_between(unknown, known)):
        known = known + "\n"  # documents are held out by their hash
    recipe = RECIPE | {"shards": {"heldout_share": share}, "sources": []}
    for name, part in (("known", known), ("unknown", unknown)):
        (folder / f"{name}.txt").write_text(part)
        recipe["sources"].append({"path": str(folder / f"{name}.txt")})
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe))
    return path


def share_between(held: str, kept: str) -> float | None:
    """A share of held-out documents that holds out the first of two and not the second."""
    shares = (step / 100 for step in range(1, 100))
    held_bytes, kept_bytes = held.encode(), kept.encode()
    return next((s for s in shares if heldout(held_bytes, s) and not heldout(kept_bytes, s)), None)


if __name__ == "__main__":
    main()
