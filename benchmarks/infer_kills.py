"""Batch inference killed with SIGKILL at seeded random moments, and gone on with.

    uv run python benchmarks/infer_kills.py [--rows 10000] [--kills 3] [--model FOLDER]

`headrace infer` answers the rows greedily, once undisturbed and once killed so often, each time the
same command. Told are the answers that each attempt found kept and asked for. It exits with 1 when
a row that was finished is asked again, by the time of its request in the store of replies and by
the command's own count, or when the two files differ in a byte. Without a model it makes a tiny
one, of random weights. Seconds are wall clock and CPU of the command's processes.
"""

import argparse
import contextlib
import json
import os
import random
import resource
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
TOKENS, CONTEXT = 300, 128
WORDS = ("one", "two", "three", "again", "water", "runs", "the", "wheel", "of", "mill", "turns")
KEPT = "SELECT key, asked FROM reply WHERE text IS NOT NULL"


@dataclass(frozen=True)
class Given:
    """What each attempt is given."""

    model: Path
    rows: Path
    max_tokens: int


def main() -> None:
    """Run both, print a line for each attempt and one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--max-tokens", type=int, default=8)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = asked.model or tiny_model(folder / "model")
        rows = write_rows(folder / "rows.jsonl", asked.rows)
        given = Given(model, rows, asked.max_tokens)
        whole = finished(given, folder / "undisturbed")
        print(f"undisturbed: {told(whole)}")
        found = killed(given, folder / "killed", asked.kills, random.Random(asked.seed))
        same = (folder / "undisturbed.jsonl").read_bytes() == (folder / "killed.jsonl").read_bytes()
    print(json.dumps({"undisturbed": whole, **found, "same_bytes": same}))
    if not same or found["asked_again"]:
        sys.exit(1)


def killed(given: Given, home: Path, kills: int, drawn: random.Random) -> dict[str, Any]:
    """The attempts until the file is there, and how many finished rows were asked again."""
    total = len(given.rows.read_text().splitlines())
    before: dict[str, float] = {}
    again, attempts = 0, []
    for place in sorted(drawn.sample(range(total // 20, total * 19 // 20), kills)):
        with started(given, home) as process:
            while len(kept(home)) < place and process.poll() is None:
                time.sleep(0.02)
            os.killpg(process.pid, signal.SIGKILL)
        after = kept(home)
        again += sum(after.get(key) != moment for key, moment in before.items())
        attempts.append({"kept_before": len(before), "kept_at_kill": len(after)})
        print(f"killed: {len(before)} kept before, {len(after)} at the kill")
        before = after
    last = finished(given, home)
    again += last["asked"] - (total - len(before))
    print(f"the last: {len(before)} kept before, {told(last)}")
    return {"attempts": attempts, "last": last, "asked_again": again}


def finished(given: Given, home: Path) -> dict[str, Any]:
    """An attempt that nothing disturbs: the command's own counts, and what it took."""
    begun, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    with started(given, home) as process:
        out, _ = process.communicate()
    assert process.returncode == 0, "headrace infer failed"
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    counts = json.loads(out)
    names = ("rows", "written", "asked", "reused", "tokens")
    return {name: counts[name] for name in names} | {
        "seconds": round(time.monotonic() - begun, 1),
        "cpu_seconds": round(cpu, 1),
    }


def told(counts: dict[str, Any]) -> str:
    """The counts of a finished attempt in words."""
    return (
        f"{counts['asked']} asked, {counts['reused']} reused, {counts['written']} of "
        f"{counts['rows']} written, {counts['seconds']} s, {counts['cpu_seconds']} CPU s"
    )


@contextlib.contextmanager
def started(given: Given, home: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The command at work, in a process group of its own that does not outlive the block."""
    to = home.with_suffix(".jsonl")
    words = ["infer", given.model, given.rows, "--to", to, "--max-tokens", given.max_tokens]
    command = [sys.executable, "-m", "flows.cli", *map(str, words), "--json"]
    variables = os.environ | {"HEADRACE_HOME": str(home)}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, cwd=ROOT, env=variables, start_new_session=True
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def kept(home: Path) -> dict[str, float]:
    """When each row was asked for whose answer is kept."""
    found: dict[str, float] = {}
    for path in home.glob("work/infer-*/replies/*.sqlite"):
        with (
            contextlib.suppress(sqlite3.OperationalError),  # it is being made
            contextlib.closing(sqlite3.connect(path)) as store,
        ):
            found |= dict(store.execute(KEPT))
    return found


def write_rows(path: Path, count: int) -> Path:
    """Rows that all ask something else, of 2 to 12 words."""
    drawn = random.Random(1)
    texts = (" ".join(drawn.choices(WORDS, k=drawn.randint(1, 11))) for _ in range(count))
    lines = (json.dumps({"id": n, "prompt": f"{n} {text}"}) for n, text in enumerate(texts))
    path.write_text("".join(line + "\n" for line in lines))
    return path


def tiny_model(folder: Path) -> Path:
    """A decoder of two layers with random weights, and a tokenizer."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    from model import hub
    from model.config import ModelConfig
    from model.transformer import Transformer
    from tasks.tokens.chat import write_tokenizer_config
    from tasks.tokens.encoder import SPECIALS

    folder.mkdir()
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=TOKENS,
        special_tokens=list(SPECIALS),
        initial_alphabet=alphabet,
        show_progress=False,
    )
    tokenizer.train_from_iterator([" ".join(WORDS)] * 20, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    torch.manual_seed(0)
    sizes = {"width": 16, "depth": 2, "heads": 2, "kv_heads": 1, "head_dim": 8, "ffn_width": 32}
    shape = ModelConfig(vocab_size=tokenizer.get_vocab_size(), context=CONTEXT, **sizes)
    hub.save(folder, Transformer(shape), {"eos_token_id": 0, "pad_token_id": 1})
    write_tokenizer_config(folder, CONTEXT)
    return folder


if __name__ == "__main__":
    main()
