"""Runs that share a trunk against the same runs from scratch: what is saved, what it costs in loss.

    uv run headrace data scaling-small
    uv run python benchmarks/sweep_branches.py shards/scaling-small-... [--width 32] [--seeds 3]

Four lengths of one width, each twice the one before. Shared: one trunk at constant rate, and four
cooldowns that branch off it; each is to the bit the run from scratch on the same schedule
(tests/scaling/test_member.py). From scratch: four runs on cosine schedules of their own length, at
the same peak rate. Prints the loss of both at each length, mean over seeds, and the FLOPs saved.
"""

import argparse
import statistics
import tempfile
from pathlib import Path

from cluster.artifact import Artifact
from cluster.environment import prepare
from cluster.stage import build
from cluster.store import Store
from tasks.scaling.sweep.member import sweep_run
from tasks.scaling.sweep.plan import MemberSettings, SweepSettings, plan_sweep
from tasks.scaling.sweep.trunk import trunk
from tasks.training.settings import OptimizerSettings

TOKENS = (262_144, 524_288, 1_048_576, 2_097_152)
RATE = {"learning_rate": 2e-3, "weight_decay": 0.05}


def main() -> None:
    """Print both sides, length by length, and what branching saves."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shards", help="an artifact of tokens, as `headrace ls` names it")
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    prepare()
    shards = Store().get(options.shards)
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        sides = [
            (
                branches(store, shards, options.width, seed),
                scratch(store, shards, options.width, seed),
            )
            for seed in range(options.seeds)
        ]
    print("   tokens  branched  scratch  difference")
    for place, tokens in enumerate(TOKENS):
        ours, theirs = (
            statistics.mean(side[which][place].manifest.metrics["loss"] for side in sides)
            for which in (0, 1)
        )
        print(f"{tokens:9,} {ours:9.4f} {theirs:8.4f} {ours / theirs - 1:+11.2%}")
    own, whole = flops(sides[0][0])
    print(f"FLOPs: {own:.3g} in place of {whole:.3g}, {1 - own / whole:.1%} saved")


def flops(runs: list[Artifact]) -> tuple[float, float]:
    """Of runs that share a trunk, shortest first: what was spent, and would be without sharing."""
    metrics = [run.manifest.metrics for run in runs]
    trunk_flops = metrics[-1]["flops"] - metrics[-1]["flops_own"]
    return trunk_flops + sum(m["flops_own"] for m in metrics), sum(m["flops"] for m in metrics)


def branches(store: Store, shards: Artifact, width: int, seed: int) -> list[Artifact]:
    """A run of each length, branched off one trunk."""
    runs, given = [], {"shards": shards, "seed": seed}
    before: dict[str, Artifact] = {}
    for member in members(width, OptimizerSettings(**RATE, cooldown_share=0.2)):
        root = build(trunk, store, settings=member.trunk(), **given, **before)
        runs.append(build(sweep_run, store, settings=member, trunk=root, **given))
        before = {"before": root}
    return runs


def scratch(store: Store, shards: Artifact, width: int, seed: int) -> list[Artifact]:
    """A run of each length on a cosine of its own."""
    cosine = members(width, OptimizerSettings(**RATE, schedule="cosine"))
    given = {"shards": shards, "seed": seed}
    return [build(sweep_run, store, settings=member, **given) for member in cosine]


def members(width: int, optimizer: OptimizerSettings) -> list[MemberSettings]:
    """One member a length, shortest first."""
    settings = SweepSettings(
        widths=(width,), head_dim=8, tokens=TOKENS, heldout_tokens=1_000_000, optimizer=optimizer
    )
    plan = plan_sweep(settings, 260)
    return sorted([*plan.grid, *plan.targets], key=lambda member: member.training.tokens)


if __name__ == "__main__":
    main()
