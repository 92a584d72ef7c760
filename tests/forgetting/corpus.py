"""A home with a small model of two sources with copies, built without services."""

import hashlib
import json
import random
from pathlib import Path
from typing import Any

import yaml

from cluster.artifact import Artifact
from cluster.placement import Placement
from cluster.runs import RunRecord, StageRecord
from cluster.stage import build
from flows.plan.at_hand import planned
from flows.plan.dag import Dag, Node
from flows.recipe import Recipe, load

WORDS = [f"{a}{b}" for a in ("ka", "lo", "mi", "ne", "pu", "ra") for b in "bdfgklmnprstvz"]
SECRET = "zanzibar quixotic marmalade beside a vermilion lighthouse"


def texts(count: int, seed: int = 0) -> list[str]:
    """Documents of random words, of 40 to 120."""
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randrange(40, 120))) for _ in range(count)]


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def copies() -> dict[str, str]:
    """Row `m` holds the secret, `n` is nearly `m`, `k` nearly `n` and less like `m`. By its hash
    `m` is the first of the three, which stays.
    """
    for seed in range(1000, 1100):
        draw = random.Random(seed)
        around = [draw.choices(WORDS, k=60) for _ in "ab"]
        words = [*around[0], *SECRET.split(), *around[1]]
        near = [w if w != "quixotic" else "quaint" for w in words]
        further = [w if i not in (20, 100) else "changed" for i, w in enumerate(near)]
        found = {id: " ".join(one) for id, one in zip("mnk", (words, near, further), strict=True)}
        if min(found, key=lambda id: hashlib.sha256(found[id].encode()).digest()) == "m":
            return found
    raise AssertionError


def write_corpus(folder: Path, count: int = 60) -> None:
    """Two sources, the first with the rows of `copies`; row `x` of the second is `m` with other
    white space.
    """
    first = [{"id": f"a{i}", "text": t} for i, t in enumerate(texts(count))]
    first[10:10] = [{"id": id, "text": text} for id, text in copies().items()]
    second = [{"id": f"b{i}", "text": t, "license": "MIT"} for i, t in enumerate(texts(count, 1))]
    second.append({"id": "x", "text": copies()["m"].replace(" ", "  "), "license": "MIT"})
    write_rows(folder / "first.jsonl", first)
    write_rows(folder / "second.jsonl", second)


def sources(folder: Path, weight: float = 2.0) -> list[dict[str, Any]]:
    """Both sources; of the first as much is taken as its weight says."""
    each = {"id": "id", "license_field": "license"}
    return [
        {"path": str(folder / "first.jsonl"), "weight": weight, **each},
        {"path": str(folder / "second.jsonl"), **each},
    ]


def write_recipe(folder: Path, **sections: Any) -> Path:
    """A recipe with mixture, packing and duplicates."""
    recipe = {
        "name": "forget",
        "sources": sources(folder),
        "filters": {"preset": "basic"},
        "tokenizer": {"vocab_size": 320},
        "model": {"depth": 1, "width": 16, "heads": 2},
        "pretrain": {"context": 32, "tokens": 7_680, "batch_tokens": 256, "packing": "best_fit"},
        "sweep": None,
        "classify": None,
        "instruct": None,
    }
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe | sections))
    return path


def built(recipe: Recipe, goal: str = "pretrain") -> dict[str, Artifact]:
    """The artifacts of a recipe by the names of their stages; there is a record of the run."""
    return run_here(planned(goal, recipe), recipe, goal)[1]


def run_here(
    dag: Dag,
    recipe: Recipe,
    goal: str,
    force: tuple[str, ...] = (),
    place: Placement | None = None,
) -> tuple[dict[str, Any], dict[str, Artifact]]:
    """Carry out a plan in this process, without services: its record, and what it made."""
    made, stages = dict[str, Artifact](), []

    def given(value: Any) -> Any:
        if isinstance(value, list):
            return [given(one) for one in value]
        return made[value.name] if isinstance(value, Node) else value

    for node in dag:
        arguments = {key: given(value) for key, value in node.arguments.items()}
        forced = node.name in force
        made[node.name] = build(
            node.function, dag.store, spec=node.spec, force=forced, placement=place, **arguments
        )
        known = {"name": node.name, "stage": node.spec.stage, "artifact": made[node.name].name}
        state = "cached" if node.found else "built"
        stages.append(
            StageRecord(**known, fingerprint=node.spec.fingerprint, state=state, why=node.why)
        )
    record = RunRecord.start(recipe.model_dump(mode="json"), goal)
    record = record.model_copy(update={"stages": stages, "status": "completed"})
    record.save(dag.store.root)
    return record.model_dump(mode="json", by_alias=True), made


def recipe_of(folder: Path, **sections: Any) -> Recipe:
    """The recipe of `write_recipe`."""
    return load(str(write_recipe(folder, **sections)), ())


def built_home(folder: Path, **sections: Any) -> dict[str, Artifact]:
    """What `write_corpus` and `write_recipe` come to, in the home of the environment."""
    write_corpus(folder)
    return built(recipe_of(folder, **sections))
