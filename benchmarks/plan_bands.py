"""Do the bands of `headrace plan` hold? Varied small runs, each planned before it starts.

    uv run python benchmarks/plan_bands.py --runs 50 --home /tmp/bands   # 25 s a run on 2 cores
    uv run python benchmarks/plan_bands.py --runs 0 --home ~/.headrace   # runs that were made

Text (from 300 kB to 8 MB of this Python's library), filters, duplicates, vocabulary, network,
tokens and goal are drawn; every run is a command of its own and shares nothing with another but
manifests to learn from. A run's record has what it was to take and what it took. Printed are the
share of runs, and of stages, whose time was inside the band of 80 %, and the median of the band's
upper end over its lower one: of all, and without the first ten, when a home knows little.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import headrace
from tasks.data.reading.sources import python_files

FIRST = 10


def main() -> None:
    """Run, then compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    home = asked.home.expanduser().resolve()
    drawn = home.with_name(f"{home.name}-recipes")
    drawn.mkdir(parents=True, exist_ok=True)
    for number in range(asked.runs):
        _run(home, drawn, number, random.Random(asked.seed * 1000 + number))
    found = [json.loads(path.read_text()) for path in sorted(home.glob("runs/*.json"))]
    done = sorted((r for r in found if r.get("spent")), key=lambda r: r["started"])
    for name, runs in (("all", done), (f"after the first {FIRST}", done[FIRST:])):
        if runs:
            print(json.dumps({"of": name, "runs": _told(runs), "stages": _told(_stages(runs))}))


def _run(home: Path, folder: Path, number: int, draw: random.Random) -> None:
    recipe, goal = _drawn(folder, number, draw)
    path = folder / f"varied-{number}.yaml"
    path.write_text(json.dumps(recipe))
    command = [sys.executable, "-c", "import headrace; headrace.main()", goal, str(path)]
    made = subprocess.run(
        command,
        env=os.environ | {"HEADRACE_HOME": str(home)},
        capture_output=True,
        text=True,
        cwd=Path(headrace.ROOT),
    )
    newest = max(home.glob(f"runs/varied-{number}-*.json"), default=None)
    about = json.loads(newest.read_text()) if newest else {}
    if made.returncode:
        print(f"run {number} failed: {made.stderr[-500:]}", file=sys.stderr)
    else:
        took, plan = about["seconds"], about["planned"]
        ends = f"{plan['seconds_low']:.1f} to {plan['seconds_high']:.1f}"
        print(f"{number} {goal}: {plan['seconds']:.1f} s, {ends}; took {took:.1f}", flush=True)


def _drawn(folder: Path, number: int, draw: random.Random) -> tuple[dict[str, Any], str]:
    """A recipe, and how far to take it."""
    text = folder / f"text-{number}"
    text.mkdir(exist_ok=True)
    files = python_files("stdlib")
    draw.shuffle(files)
    left = 10 ** draw.uniform(5.5, 6.9)
    for place, file in enumerate(files):
        left -= file.size
        (text / f"{place}.py.txt").write_bytes(file.path.read_bytes())
        if left < 0:
            break
    width = draw.choice((16, 32, 48, 64))
    recipe: dict[str, Any] = {
        "name": f"varied-{number}",
        "sources": [str(text)],
        "filters": {"preset": draw.choice(("basic", "code", "code"))},
        "dedup": {"fuzzy": draw.random() < 0.7},
        "shards": {"heldout_share": 0.3},
        "tokenizer": {"vocab_size": draw.choice((300, 512, 1024, 2048))},
        "model": {"depth": draw.randint(1, 3), "width": width, "heads": width // 16},
        "pretrain": {
            "context": 64,
            "tokens": int(10 ** draw.uniform(4, 5.5)),
            "batch_tokens": draw.choice((512, 1024)),
        },
        "sweep": None,
        "classify": None,
        "instruct": None,
        "evaluate": {"heldout": {"max_tokens": draw.choice((5000, 20000))}},
    }
    goal = draw.choice(("data", "data", "pretrain"))
    return recipe, goal


def _stages(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [s for run in runs for s in run["stages"] if s["state"] == "built" and s["planned"]]


def _told(them: Sequence[dict[str, Any]]) -> dict[str, float]:
    """How many, the share inside the band, the median of the upper end over the lower one, and of
    what it took over what it was to take.
    """
    plans = [(one["planned"], one["seconds"]) for one in them if one["planned"]["seconds"]]
    inside = [p["seconds_low"] <= took <= p["seconds_high"] for p, took in plans]
    return {
        "count": len(plans),
        "inside": round(statistics.fmean(inside), 3),
        "upper_over_lower": round(
            statistics.median(p["seconds_high"] / p["seconds_low"] for p, _ in plans), 2
        ),
        "took_over_planned": round(statistics.median(t / p["seconds"] for p, t in plans), 2),
    }


if __name__ == "__main__":
    main()
