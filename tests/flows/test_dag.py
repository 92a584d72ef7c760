"""The plan: fingerprints before anything runs, and a reason for every stage."""

import random
import shutil
from pathlib import Path
from typing import Annotated, Any

import pytest

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.runs import RunRecord, StageRecord
from cluster.settings import Aside, Content, Gate, Limit, Settings
from cluster.stage import build, specify, stage
from cluster.store import Draft, Store
from flows.end_to_end import plan as plan_recipe
from flows.end_to_end import prepare_data
from flows.plan.dag import Dag
from flows.plan.estimate import estimate
from flows.recipe import load, validate


class Size(Settings):
    vocab_size: int = 8
    parts: tuple[str, ...] = ("a",)


@stage(version=1)
def dig(settings: Size, draft: Draft) -> None:
    (draft.path / "x").write_text("x")


class Sieve(Settings):
    most_lost: Annotated[float, Gate()] = 0.5
    seconds: Annotated[float, Limit()] = 10


def check_sieve(found: Any, settings: Sieve) -> None:
    if found.facts["lost"] > settings.most_lost:
        raise BadInput(f"{found.facts['lost']} are lost, more than {settings.most_lost} allows")


@stage(version=1, gate=check_sieve)
def sift(ditch: Artifact, settings: Sieve, draft: Draft) -> None:
    draft.facts = {"lost": 0.25, "reached": {"seconds": 3 if settings.seconds < 20 else 0}}


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
        made[node.name] = node.found or build(
            node.function, dag.store, spec=node.spec, **inputs, **node.literals
        )


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


class Rules(Settings):
    limits: dict[str, float | None] = {}
    size: Size | None = None


@stage(version=1)
def strain(settings: Rules, draft: Draft) -> None:
    (draft.path / "water").write_text(str(settings))


def test_a_rule_left_out_by_null_is_a_reason_and_a_section_says_nothing_beside_its_keys(
    tmp_path: Path,
) -> None:
    def strained(**settings: Any) -> str:
        dag = Dag("mill", Store(tmp_path))
        node = dag.add(strain, settings=Rules(**settings))
        carry_out(dag)
        return node.why

    assert strained() == "first build"
    assert strained(limits={"fish": None}) == "limits.fish not set -> null"
    assert strained(limits={"fish": 2}) == "limits.fish null -> 2.0"
    changed = strained(size={"vocab_size": 16, "parts": []})
    assert changed == "limits.fish 2.0 -> not set, size.vocab_size not set -> 16"


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


def sifted(store: Store, **settings: float) -> Any:
    dag = Dag("mill", store)
    ditch = dag.add(dig, settings=Size())
    node = dag.add(sift, ditch=ditch, settings=Sieve(**settings))
    carry_out(dag)
    return node


def test_a_tolerance_is_held_against_what_is_found_and_changes_no_identity(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with pytest.raises(BadInput, match=r"0.25 are lost, more than 0.1 allows"):
        sifted(store, most_lost=0.1)
    assert not list(tmp_path.glob("artifacts/sift/[!.]*"))
    first = sifted(store)
    lax = sifted(store, most_lost=0.9)
    assert lax.found and lax.spec.fingerprint == first.spec.fingerprint
    with pytest.raises(BadInput, match=r"sift/mill-\w+, built before: 0.25 .* or `--rebuild sift`"):
        sifted(store, most_lost=0.1)


def test_a_tolerance_is_held_against_what_another_process_built_meanwhile(tmp_path: Path) -> None:
    store = Store(tmp_path)
    ditch = build(dig, store, settings=Size())
    build(sift, store, ditch=ditch, settings=Sieve())
    with pytest.raises(BadInput, match=r"0.25 are lost, more than 0.1 allows"):
        build(sift, store, ditch=ditch, settings=Sieve(most_lost=0.1))


def test_a_limit_counts_where_rows_reached_it(tmp_path: Path) -> None:
    store = Store(tmp_path)
    first = sifted(store)
    shorter = sifted(store, seconds=5)
    assert shorter.found and shorter.spec.fingerprint == first.spec.fingerprint
    longer = sifted(store, seconds=20)
    assert longer.why == "seconds 10.0 -> 20.0"
    for seconds in (30, 15):  # no row reached 20 seconds
        assert sifted(store, seconds=seconds).spec.fingerprint == longer.spec.fingerprint


def test_what_settings_name_is_looked_up_once_a_plan(tmp_path: Path) -> None:
    asked = []

    def content(name: str) -> str:
        asked.append(name)
        return name.upper()

    class Named(Settings):
        files: Annotated[tuple[str, ...], Content(content, each=True)] = ("a", "b")
        notes: Annotated[str, Aside()] = ""

    @stage(version=1)
    def weigh(settings: Named, draft: Draft) -> None: ...

    asked.clear()
    dag = Dag("mill", Store(tmp_path))
    one = dag.add(weigh, settings=Named(notes="x"))
    assert dag.add(weigh, settings=Named(notes="y")) is one
    assert dag.add(weigh, settings=Named(files=("b", "c"))) is not one
    assert one.spec.settings["settings"] == {"files": ["A", "B"]}
    assert asked == ["a", "b", "c"]


def test_what_changes_after_it_was_planned_is_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("before")

    class Named(Settings):
        file: Annotated[str, Content(lambda name: Path(name).read_text())]

    @stage(version=1)
    def weigh(settings: Named, draft: Draft) -> None:
        (draft.scratch / "half").write_text("")
        path.write_text("after")

    dag = Dag("mill", Store(tmp_path))
    node = dag.add(weigh, settings=Named(file=str(path)))
    with pytest.raises(BadInput, match=r"settings.file of stage 'weigh' names changed"):
        build(weigh, dag.store, spec=node.spec, **node.literals)
    assert not dag.store.scratch(node.spec).exists()
    assert not list(tmp_path.glob("artifacts/weigh/[!.]*"))


def test_an_artifact_of_an_earlier_run_is_an_input(tmp_path: Path) -> None:
    store = Store(tmp_path)
    carry_out(plan(store))
    (ditch, _) = store.artifacts()
    dag = Dag("mill", store)
    node = dag.add(fill, ditch=ditch, settings=Size(), seed=0)
    assert node.found and node.given == {"ditch": ditch} and not node.upstream
    with pytest.raises(BadInput, match="ditch: replaced since the run was planned"):
        build(fill, store, spec=node.spec, ditch=node.found, **node.literals)


def test_a_thousand_stages_are_planned_in_one_reading_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads, honest = [], Artifact.load
    monkeypatch.setattr(Artifact, "load", lambda path: loads.append(path) or honest(path))
    store = Store(tmp_path)
    carry_out(plan(store))
    loads.clear()
    dag = Dag("mill", store)
    ditch = dag.add(dig, settings=Size())
    for seed in range(1000):
        dag.add(fill, ditch=ditch, settings=Size(), seed=seed)
    assert len(dag.nodes) == 1001 and len(loads) == 2


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


def test_steps_are_stages_where_an_endpoint_judges(fresh_home: Path) -> None:
    def names(*overrides: str) -> list[str]:
        recipe = load("smoke", ["sweep=null", *overrides])
        return [node.name for node in plan_recipe("all", Dag("smoke", Store()), recipe)]

    before = names()
    assert not [name for name in before if name.startswith("steps")]
    after = names("evaluate.judge.model=m", "evaluate.judge.criteria=[fluency, 'Is it polite?']")
    assert set(after) - set(before) == {"steps/fluency", "steps/is_it_polite"}


def test_identities_need_no_more_than_was_looked_up(tmp_path: Path, fresh_home: Path) -> None:
    """When the files that a recipe names are gone, its stages have the same fingerprints."""
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "rows.jsonl").write_text('{"text": "It is.", "label": 1}\n')
    (folder / "mine.py").write_text("def good(text):\n    return True\n")
    rows = str(folder / "rows.jsonl")
    values = {
        "name": "mill",
        "sources": [rows],
        "filters": {
            "custom": [f"{folder}/mine.py:good"],
            "bad_words": {"lists": [rows]},
            "quality": {"labelled": rows},
            "perplexity": {"reference": rows, "max_bits_per_byte": 9},
        },
        "decontaminate": {"benchmarks": [{"path": rows}]},
    }
    dag = plan_recipe("data", Dag("mill", Store()), validate(values, "here"))
    shutil.rmtree(folder)
    for node in dag:
        again = specify(node.function, "mill", node.spec.inputs, node.literals, found=dag.contents)
        assert again.fingerprint == node.spec.fingerprint


def fingerprints(folder: Path, *said: str) -> list[str]:
    """Of all stages of the smoke recipe, about a text of one's own."""
    (folder / "text.txt").write_text("Water runs down to the mill.")
    recipe = load("smoke", [f"sources=[{{path: {folder}/text.txt}}]", *said])
    return [node.spec.fingerprint for node in plan_recipe("all", Dag("smoke", Store()), recipe)]


def test_placement_is_in_no_fingerprint(tmp_path: Path, fresh_home: Path) -> None:
    elsewhere = ("micro_batch_tokens=64", "workers=2", "zero_stage=1", "checkpoint_seconds=1")
    changed = fingerprints(tmp_path, *(f"placement.{one}" for one in elsewhere))
    assert fingerprints(tmp_path) == changed


def test_no_tolerance_of_a_recipe_is_in_a_fingerprint(tmp_path: Path, fresh_home: Path) -> None:
    same = fingerprints(tmp_path)
    assert fingerprints(tmp_path, "sources.0.rows=1") == same
    for key in ("read.max_bad_rate", "filters.max_failed_rate", "evaluate.judge.max_unscored"):
        assert fingerprints(tmp_path, f"{key}=0.9") == same, key
    # There is no custom filter.
    assert fingerprints(tmp_path, "filters.custom_seconds=99") == same


WORDS = ["mill", "race", "wheel", "stone", "grain", "flour", "water"]


def test_a_plan_tells_of_text_that_a_sweep_sees_again(tmp_path: Path, fresh_home: Path) -> None:
    """Once the shards are made; before, nobody knows how much text there is."""
    for number in range(12):
        words = random.Random(number).choices(WORDS, k=60)
        (tmp_path / f"{number}.txt").write_text(" ".join(words))
    said = [
        f"sources=[{{path: '{tmp_path}/*.txt'}}]",
        "shards.heldout_share=0.5",
        "dedup.fuzzy=false",
    ]
    recipe = load("smoke", [*said, "filters={limits: {}}", "tokenizer.vocab_size=300"])
    assert "sees its text" not in str(estimate(recipe)["warnings"])
    dag = Dag("smoke", Store())
    prepare_data(dag, recipe)
    carry_out(dag)
    assert "d16-t4k sees its text" in str(estimate(recipe)["warnings"])


def test_pairs_are_learned_from_nothing_without_pretraining(tmp_path: Path) -> None:
    """The sources are the tokenizer's, and no shards are made of them."""
    rows = tmp_path / "pairs.jsonl"
    rows.write_text('{"source": "a b", "target": "c d"}\n')
    values: dict[str, Any] = {
        "name": "pairs",
        "sources": [{"path": str(rows), "text": text} for text in ("source", "target")],
        "model": {"family": "encoder_decoder", "depth": 2},
        "pretrain": None,
        "evaluate": {"answers": None},
    }
    asked = validate({**values, "translate": {"data": str(rows), "length": 32}}, "test")
    dag = plan_recipe("all", Dag("pairs", Store(tmp_path)), asked)
    stages = [node.spec.stage for node in dag]
    assert stages[-4:] == ["tokenizer", "fresh", "translate", "report"]
    assert "shards" not in stages
    assert next(n for n in dag if n.spec.stage == "fresh").literals["context"] == 33
    with pytest.raises(BadInput, match="or for `translate` or `summarise` from nothing"):
        validate(values, "test")
