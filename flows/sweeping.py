"""The part of the DAG that is a sweep: trunks, the runs that branch off them, the law, its test.

    trunk/d32-s400 -> trunk/d32-s1300 -> ...       one chain a width
          |                 |
    sweep/d32-t256k   sweep/d32-t832k   ...  ->  fit  ...>  larger runs  ->  forecast

A larger run starts after the fit has said what it will do, and takes nothing from it.
"""

from typing import Any

from flows.plan.dag import Dag, Node
from flows.recipe import Recipe
from tasks.scaling.law.stage import fit, forecast
from tasks.scaling.sweep.member import sweep_run
from tasks.scaling.sweep.plan import MemberSettings, SweepSettings, flops, parameters, plan_sweep
from tasks.scaling.sweep.trunk import trunk


def sweep(dag: Dag, recipe: Recipe, settings: SweepSettings, shards: Node, name: str = "") -> Node:
    """Every run as a stage of its own, the fit, the runs it predicts, and the comparison. `name`
    tells the stages of one sweep from those of others beside it.
    """
    vocab_size = recipe.tokenizer.vocab_size
    plan = plan_sweep(settings, vocab_size)
    trunks = Trunks(dag, shards, recipe.seed, plan.trunks, name)
    runs = [trunks.run(member) for member in plan.grid]
    targets = [_target(member, vocab_size) for member in plan.targets]
    law = dag.add(fit, label=name, runs=runs, targets=targets, settings=recipe.fit)
    larger = [trunks.run(member, after=law) for member in plan.targets]
    return dag.add(forecast, label=name, fit=law, runs=larger) if larger else law


class Trunks:
    """The trunks of each width so far, and runs that branch off them."""

    def __init__(self, dag: Dag, shards: Node, seed: int, shared: bool, name: str):
        self.dag, self.seed, self.shards, self.shared = dag, seed, shards, shared
        self.prefix = f"{name}-" if name else ""
        self.by_width: dict[int | None, dict[int, Node]] = {}

    def run(self, member: MemberSettings, after: Node | None = None) -> Node:
        """A run of the sweep; what it needs of its trunk is added."""
        root: dict[str, Any] = {}
        if self.shared and member.branch_step:
            root = {"trunk": self.up_to(member, after)}
        return self.dag.add(
            sweep_run,
            label=self.prefix + member.label,
            after=after,
            shards=self.shards,
            settings=member,
            seed=self.seed,
            **root,
        )

    def up_to(self, member: MemberSettings, after: Node | None) -> Node:
        """The trunk that a member branches off, from the longest shorter one."""
        known = self.by_width.setdefault(member.model.width, {})
        end = member.branch_step
        if end not in known:
            shorter = [step for step in known if step < end]
            before = {"before": known[max(shorter)]} if shorter else {}
            settings = member.trunk()
            known[end] = self.dag.add(
                trunk,
                label=self.prefix + settings.label,
                after=after,
                shards=self.shards,
                settings=settings,
                seed=self.seed,
                **before,
            )
        return known[end]


def _target(member: MemberSettings, vocab_size: int) -> dict[str, Any]:
    training = member.training
    return {
        "name": member.label,
        "params": float(parameters(member, vocab_size)),
        "tokens": float(training.steps * training.batch_tokens),
        "flops": flops(member, vocab_size),
    }
