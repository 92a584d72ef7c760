"""The plan: fingerprints before anything runs, and a reason for every stage."""

from pathlib import Path

import pytest

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.runs import RunRecord, StageRecord
from cluster.settings import Settings
from cluster.stage import build, stage
from cluster.store import Draft, Store
from flows.dag import Dag
from flows.end_to_end import plan as plan_recipe
from flows.recipe import validate


class Size(Settings):
    vocab_size: int = 8
    parts: tuple[str, ...] = ("a",)


@stage(version=1)
def dig(settings: Size, draft: Draft) -> None:
    (draft.path / "x").write_text("x")


@stage(version=1)
def fill(ditch: Artifact, settings: Size, seed: int, draft: Draft) -> None:
    (draft.path / "x").write_text("y")


def plan(store: Store, size: int = 8, seed: int = 0, rebuild: frozenset[str] = frozenset()) -> Dag:
    dag = Dag("mill", store, rebuild)
    ditch = dag.add(dig, settings=Size(vocab_size=size))
    dag.add(fill, ditch=ditch, settings=Size(), seed=seed)
    return dag


def carry_out(dag: Dag) -> None:
    made: dict[str, Artifact] = {}
    for node in dag:
        inputs = {key: made[value.name] for key, value in node.upstream.items()}
        made[node.name] = build(node.function, dag.store, recipe="mill", **inputs, **node.literals)


def reasons(dag: Dag) -> list[str]:
    return [node.why for node in dag]


def test_a_first_run_builds_everything_and_a_second_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path)
    first = plan(store)
    assert reasons(first) == ["first build", "first build"]
    carry_out(first)
    assert reasons(plan(store)) == ["unchanged", "unchanged"]
    assert all(node.found for node in plan(store))


def test_a_changed_setting_is_named_and_its_dependents_follow(tmp_path: Path) -> None:
    store = Store(tmp_path)
    carry_out(plan(store))
    assert reasons(plan(store, size=16)) == ["vocab_size 8 -> 16", "its ditch changed"]
    assert reasons(plan(store, seed=3)) == ["unchanged", "seed 0 -> 3"]


def test_rebuild_forces_one_stage_and_refuses_an_unknown_one(tmp_path: Path) -> None:
    store = Store(tmp_path)
    carry_out(plan(store))
    dag = plan(store, rebuild=frozenset({"dig"}))
    assert reasons(dag) == ["forced", "unchanged"]
    dag.check_rebuild()
    with pytest.raises(BadInput, match="did you mean 'fill'"):
        plan(store, rebuild=frozenset({"fil"})).check_rebuild()


def test_a_deleted_folder_is_noticed(tmp_path: Path) -> None:
    store = Store(tmp_path)
    dag = plan(store)
    carry_out(dag)
    stages = [
        StageRecord(
            name=node.name,
            stage=node.name,
            fingerprint=node.spec.fingerprint,
            state="built",
            why="",
            artifact=str(store.folder(node.spec)),
        )
        for node in dag
    ]
    record = RunRecord.start({"name": "mill"}, "all").model_copy(update={"stages": stages})
    record.save(tmp_path)
    folder = store.folder(next(iter(dag)).spec)
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    assert reasons(plan(store)) == ["its folder is gone", "unchanged"]


def test_arguments_must_match_the_stage(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="takes"):
        Dag("mill", Store(tmp_path)).add(fill, settings=Size())


def test_an_exam_is_split_by_the_stage_that_looked_for_its_rows(
    tmp_path: Path, fresh_home: Path
) -> None:
    rows = '{"id": 1, "question": "Is it?", "answers": ["yes"]}\n'
    for name, text in (("seen", rows), ("new", rows + rows)):
        (tmp_path / f"{name}.jsonl").write_text(text)
        about = f"name: {name}\nkind: exact\nrows: {name}.jsonl\n"
        (tmp_path / f"{name}.yaml").write_text(about)
    (tmp_path / "text.jsonl").write_text('{"text": "It is."}\n')
    values = {
        "name": "mill",
        "sources": [str(tmp_path / "text.jsonl")],
        "decontaminate": {"benchmarks": [{"path": str(tmp_path / "seen.jsonl")}]},
        "evaluate": {"exams": [str(tmp_path / f"{name}.yaml") for name in ("seen", "new")]},
    }
    dag = plan_recipe("all", Dag("mill", Store(tmp_path)), validate(values, "here"))
    of = {node.name: node for node in dag}
    assert of["exam/seen"].upstream["searched"] is of["decontaminate"]
    assert "searched" not in of["exam/new"].upstream
