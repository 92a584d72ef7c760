"""`headrace erase`: rows are gone everywhere, all else stays in its place, and it holds."""

import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
from dataclasses import replace
from html import escape
from pathlib import Path

import pytest

from cluster.artifact import Artifact
from cluster.home import home as home_of
from cluster.store import Store
from flows.commands import forgetting
from flows.plan.at_hand import planned
from tasks.data.reading.erasures import kept
from tasks.data.text import read_table
from tasks.forgetting.grams import grams, holders
from tasks.forgetting.scrubbing import scrub
from tests.forgetting.corpus import (
    SECRET,
    built,
    built_home,
    copies,
    recipe_of,
    run_here,
    sources,
    texts,
    write_rows,
)
from tests.shell import headrace

ROOT = Path(__file__).parents[2]
M, N, K, X = "first.jsonl/m", "first.jsonl/n", "first.jsonl/k", "second.jsonl/x"
PRETRAIN = {"context": 32, "tokens": 7_680, "batch_tokens": 256, "kept_checkpoints": 29}
BEST_FIT = {"seed": 4, "pretrain": PRETRAIN | {"packing": "best_fit"}}  # `m` comes in step 10


@pytest.fixture(autouse=True)
def without_services(monkeypatch):
    """What is to be built again is built in this process."""
    monkeypatch.setattr(
        forgetting, "run_planned", lambda dag, recipe, goal, *_: run_here(dag, recipe, goal)[0]
    )


@pytest.fixture(scope="module")
def made_once(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADRACE_HOME", str(folder / "home"))
        built_home(folder, **BEST_FIT)
    return folder


@pytest.fixture
def folder(made_once, tmp_path, monkeypatch):
    """The home, each time as it was before anything was erased."""
    shutil.copytree(made_once / "home", tmp_path / "home")
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    return made_once


def erased(*arguments, status=0):
    done = headrace("erase", *arguments, "--yes", "--json")
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout)


def traced(*arguments):
    return json.loads(headrace("trace", *arguments, "--json").stdout)


def found_in(dag):
    return {node.name: node.found for node in dag}


def ids_of(text: Artifact) -> set[str]:
    return set(read_table(text, ["id"])["id"].to_pylist())


def trained_from_the_start(folder, **sections) -> bytes:
    """The weights of a training of the shards as they are now, from the first step on."""
    recipe = recipe_of(folder, **sections)
    _, made = run_here(planned("pretrain", recipe), recipe, "pretrain", force=("pretrain",))
    return made["pretrain"].file("model.safetensors").read_bytes()


def test_rows_and_copies_are_gone_and_the_same_recipe_is_cached(folder):
    before = found_in(planned("pretrain", recipe_of(folder, **BEST_FIT)))
    saw = traced(SECRET)["models"][0]["first"]
    result = erased(SECRET)
    assert not any(traced(SECRET)[key] for key in ("rows", "samples", "artifacts"))
    after = found_in(planned("pretrain", recipe_of(folder, **BEST_FIT)))
    assert all(after.values())
    assert not any(one.path.exists() for one in before.values())
    ledger = after["read"].manifest.ledger
    assert (ledger.rows_in, ledger.rejects) == (124, {"erased": 3})
    assert K not in ids_of(after["dedup"])  # it went as a copy, and does not come back
    (model,) = [one for one in result["rebuilt"] if one["artifact"].startswith("pretrain/")]
    assert model["how"] == "replayed"
    assert 0 < model["from_step"] < saw
    assert result["replayed"]["steps"] == 30 - model["from_step"]
    assert headrace("verify").returncode == 0


def test_a_replay_ends_with_the_weights_of_a_training_with_tombstones_from_its_first_step(folder):
    result = erased(SECRET)
    assert {one["how"] for one in result["rebuilt"]} == {
        "rewritten",
        "carried",
        "replayed",
        "rebuilt",
    }
    model = found_in(planned("pretrain", recipe_of(folder, **BEST_FIT)))["pretrain"]
    replayed = model.file("model.safetensors").read_bytes()
    assert trained_from_the_start(folder, **BEST_FIT) == replayed


SIX = "a quaint ferret juggles velvet teapots"
CASES = [("concatenate", 1.0), ("padded", 3.0)]  # best_fit with 2.0 in all other tests


@pytest.mark.parametrize(("packing", "weight"), CASES)
def test_random_rows_under_any_packing_and_mixture(tmp_path, monkeypatch, packing, weight):
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    mixed = sources(tmp_path, weight)
    sections = {"sources": mixed, "pretrain": PRETRAIN | {"packing": packing}}
    made = built_home(tmp_path, **sections)
    check_random_rows(tmp_path, made, sections, random.Random(packing + str(weight)))


def check_random_rows(folder, made, sections, draw):
    rows = sorted(ids_of(made["redact"]))
    chosen = draw.sample(rows, draw.randrange(1, 4))
    words = {row["id"]: row["text"] for row in read_table(made["read"]).to_pylist()}
    pattern = "|".join(f"^{words[id][:60]}" for id in chosen)
    result = erased("--pattern", pattern)
    gone = {row["id"] for row in result["found"]["rows"]}
    assert gone >= set(chosen)
    model = found_in(planned("pretrain", recipe_of(folder, **sections)))["pretrain"]
    replayed = model.file("model.safetensors").read_bytes()
    assert trained_from_the_start(folder, **sections) == replayed
    kept_rows = [text for id, text in words.items() if id not in gone]
    wanted = {g for id in gone for g in grams(words[id])} - {g for t in kept_rows for g in grams(t)}
    assert not holders(home_of(), wanted, ())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_twenty_random_sets_of_rows(folder, seed):
    made = found_in(planned("pretrain", recipe_of(folder, **BEST_FIT)))
    check_random_rows(folder, made, BEST_FIT, random.Random(seed))


def test_nothing_that_the_home_keeps_has_a_piece_of_the_text(folder):
    erased(SECRET)
    wanted = {gram for id in "mn" for gram in grams(copies()[id])} - grams(copies()["k"])
    assert holders(folder, wanted, (folder / "home",))  # the sources have it
    assert not holders(home_of(), wanted, ())


PLANTED = {
    "mlflow/mlflow.db": "params (run_uuid, key, value)",
    "prefect/prefect.db": "log (name, level, message)",
    "judge/replies.sqlite": "reply (model, key, text)",
}


def databases(texts: list[str]) -> dict[Path, list[str]]:
    """In each database of a home a table with such texts, beside words that are others'."""
    found = {}
    for name, table in PLANTED.items():
        path = home_of() / name
        path.parent.mkdir(exist_ok=True)
        with sqlite3.connect(path) as database:
            database.execute(f"CREATE TABLE {table}")
            for text in texts:
                database.execute(f"INSERT INTO {table.split()[0]} VALUES ('a', 'k', ?)", (text,))
        found[path] = texts
    return found


def told_by(path: Path) -> list[str]:
    """What stands in the last column of the table of a database."""
    with sqlite3.connect(path) as database:
        return [
            row[2] for row in database.execute(f"SELECT * FROM {PLANTED[named(path)].split()[0]}")
        ]


def named(path: Path) -> str:
    return str(path.relative_to(home_of()))


def test_pages_logs_replies_and_databases_lose_pieces_of_the_text(folder):
    piece = " ".join(copies()["m"].split()[50:74])  # what follows is in a row that stays, too
    page = home_of() / "runs/old.html"
    page.parent.mkdir(exist_ok=True)
    page.write_text(f"<p>before {piece.replace(' ', chr(10), 3)} after</p>")
    planted = databases([json.dumps({"a": piece}), f"row '{piece}' is no number", piece])
    result = erased(SECRET)
    assert result["scrubbed"] == sorted(map(str, [page, *planted]))
    assert "quixotic" not in page.read_text() and "before (erased) after" in page.read_text()
    for path in planted:
        assert told_by(path) == ['{"a": "(erased)"}', "row '(erased)' is no number", "(erased)"]
        assert b"quixotic" not in path.read_bytes()


def test_a_piece_is_found_as_json_and_html_have_it(tmp_path):
    text = (
        "na\u00efve Zo\u00eb isn't \"sure\" the caf\u00e9's <tea> costs more & than \u4e94 tonight"
    )
    forms = (str, json.dumps, lambda said: json.dumps(json.dumps(said)), escape, repr)
    for form in forms:
        (tmp_path / f"{len(list(tmp_path.iterdir()))}.log").write_text(f"before {form(text)} after")
    wanted = grams(text)
    assert len(scrub(tmp_path, wanted, ())[0]) == len(forms)
    for path in tmp_path.iterdir():
        assert "tonight" not in path.read_text() and "Zo" not in path.read_text()
        assert path.read_text().startswith("before ")


def test_a_short_text_is_looked_for_and_a_shorter_one_stands_under_what_remains(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    rows = [{"id": f"a{i}", "text": t} for i, t in enumerate(texts(30))]
    rows += [{"id": "six", "text": SIX}, {"id": "two", "text": "quaint gimlet"}]
    write_rows(tmp_path / "c.jsonl", rows)
    source = {"path": str(tmp_path / "c.jsonl"), "id": "id"}
    changes = {"sources": [source], "shards": {"heldout_share": 0.3}, **BEST_FIT}
    built(recipe_of(tmp_path, **changes), "data")
    planted = databases([f"'{SIX}' is no number", "a quaint gimlet"])
    remains = erased("--pattern", "quaint")["remains"]
    for path in planted:
        assert told_by(path) == ["'(erased)' is no number", "a quaint gimlet"]
    (short,) = [one["what"] for one in remains if "fewer than" in one["why"]]
    assert short == "the text of row c.jsonl/two"


def test_a_text_that_names_a_source_stands_under_what_remains(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    rows = [{"id": f"a{i}", "text": t} for i, t in enumerate(texts(30))]
    write_rows(tmp_path / f"{SIX}.jsonl", [*rows, {"id": "six", "text": SIX}])
    source = {"path": str(tmp_path / f"{SIX}.jsonl"), "id": "id"}
    changes = {"sources": [source], "shards": {"heldout_share": 0.3}, **BEST_FIT}
    made = built(recipe_of(tmp_path, **changes), "data")
    (named,) = [one["what"] for one in erased(SIX)["remains"] if "rename" in one["why"]]
    assert named == source["path"]
    assert not made["read"].path.exists()


def test_copies_in_a_shared_store_are_removed(made_once, tmp_path, monkeypatch):
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HEADRACE_STORE", f"file://{tmp_path / 'shared'}")
    made = built_home(tmp_path, **BEST_FIT)
    old = [tmp_path / "shared" / one.name for one in made.values()]
    assert all(path.is_dir() for path in old)
    erased(SECRET)
    assert not any(path.exists() for path in old)
    new = found_in(planned("pretrain", recipe_of(tmp_path, **BEST_FIT))).values()
    assert all((tmp_path / "shared" / one.name / "artifact.json").is_file() for one in new)


def test_an_erasure_holds_for_later_runs_and_other_sources(folder, tmp_path):
    erased(SECRET)
    words = copies()["m"].split()
    later = [*words[:-1], "later"]
    rows = [{"id": "p", "text": copies()["m"]}, {"id": "q", "text": " ".join(later)}]
    rows += [{"id": f"c{i}", "text": text} for i, text in enumerate(texts(60, 5))]
    write_rows(tmp_path / "third.jsonl", rows)
    source = {"path": str(tmp_path / "third.jsonl"), "id": "id"}
    made = built(recipe_of(tmp_path, name="other", sources=[source], **BEST_FIT), "data")
    assert made["read"].manifest.ledger.rejects == {"erased": 2}
    assert "third.jsonl/p" not in ids_of(made["read"])
    samples = made["read"].manifest.facts["samples"]["erased"]
    assert [one["text"] for one in samples] == ["", ""]


def test_other_sources_are_what_they_were(folder, tmp_path):
    write_rows(
        tmp_path / "c.jsonl", [{"id": f"c{i}", "text": t} for i, t in enumerate(texts(60, 5))]
    )
    source = {"path": str(tmp_path / "c.jsonl"), "id": "id"}
    recipe = recipe_of(tmp_path, name="other", sources=[source], **BEST_FIT)
    before = run_here(planned("data", recipe), recipe, "data")[1]["read"]
    erased(SECRET)
    assert found_in(planned("data", recipe))["read"].fingerprint == before.fingerprint
    assert found_in(planned("data", recipe))["shards"] is not None


def test_two_erasures_after_each_other(folder):
    erased(SECRET)
    erased("--id", "a3")
    assert not traced("--id", "a3")["rows"] and not traced(SECRET)["rows"]
    model = found_in(planned("pretrain", recipe_of(folder, **BEST_FIT)))["pretrain"]
    assert (
        trained_from_the_start(folder, **BEST_FIT) == model.file("model.safetensors").read_bytes()
    )
    assert len(kept()) == 2


def test_a_source_that_changed_since_is_no_hindrance(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "moved", ignore=shutil.ignore_patterns("home"))
    recipe = recipe_of(tmp_path / "moved", **BEST_FIT)
    # The same content elsewhere is the same text.
    assert all(found_in(planned("pretrain", recipe)).values())
    run_here(planned("pretrain", recipe), recipe, "pretrain")
    path = tmp_path / "moved/first.jsonl"
    path.write_text("".join(line for line in path.open() if SECRET not in line))
    result = erased(SECRET)
    assert {one["how"] for one in result["rebuilt"]} >= {"replayed"}


@pytest.mark.parametrize(
    "place", ["make", "rewind", "run_planned", "proved", "remove", "write_certificate"]
)
def test_cut_short_anywhere_the_same_command_goes_on(folder, monkeypatch, place):
    from flows import forgetting as flow

    where = forgetting if place == "run_planned" else flow
    whole = getattr(where, place)
    calls = []

    def cut(*arguments, **named):
        calls.append(place)
        if place in ("make", "remove") and len(calls) == 1:
            whole(*arguments, **named)  # the first of several, or all but the end
            if place == "make":
                return
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(where, place, cut)
        assert headrace("erase", SECRET, "--yes").returncode == 130
    if place in ("make", "run_planned"):
        other = headrace("erase", "--id", "a3", "--yes")
        assert other.returncode == 2 and "cut short" in other.stderr
    result = erased(SECRET)
    assert result["removed"] and result["rebuilt"] and result["places"]
    assert not traced(SECRET)["rows"]
    assert all(found_in(planned("pretrain", recipe_of(folder, **BEST_FIT))).values())
    assert len(kept()) == 1
    assert erased(SECRET)["certificate"] == result["certificate"]


def test_a_plan_changes_nothing_and_a_refusal_says_what_to_do(folder):
    files = sorted(home_of().rglob("*"))
    done = headrace("erase", SECRET, "--dry-run", "--json")
    plan = json.loads(done.stdout)
    assert plan["seconds"] > 0 and plan["changes"]
    assert [f for f in sorted(home_of().rglob("*")) if "locks" not in f.parts] == [
        f for f in files if "locks" not in f.parts
    ]
    seen = min(traced("--id", f"a{i}")["models"][0]["first"] or 99 for i in range(60))
    assert seen < 3
    early = next(
        f"a{i}" for i in range(60) if traced("--id", f"a{i}")["models"][0]["first"] == seen
    )
    refused = headrace("erase", "--id", early, "--yes", "--replay-only")
    assert refused.returncode == 2 and "kept_checkpoints" in refused.stderr
    assert traced("--id", early)["rows"]
    result = erased("--id", early)
    (trained,) = [one for one in result["rebuilt"] if one["how"] == "trained"]
    assert trained["from_step"] == 0 and "no checkpoint" in trained["why"]
    assert result["anew"] == {"trainings": 1, "steps": 30, "seconds": trained["seconds"]}
    assert "made\nfrom their first step: 30 steps" in Path(result["page"]).read_text()


def test_the_certificate_tells_all_and_has_none_of_the_text(folder):
    result = erased(SECRET)
    told = json.loads(Path(result["certificate"]).read_text())
    assert {"asked", "found", "removed", "rebuilt", "remains", "hashes"} <= told.keys()
    page = Path(result["page"]).read_text()
    for text in (page, json.dumps(told)):
        assert not grams(copies()["m"]) & grams(text) and "zanzibar" not in text
    remains = {one["what"]: one["why"] for one in told["remains"]}
    assert "as before" in remains[str(folder / "first.jsonl")]
    assert any(name.startswith("tokenizer/") for name in remains)
    assert all(one["before"]["manifest"] != one["after"]["manifest"] for one in told["hashes"])


def test_what_no_row_holds_is_no_erasure(folder):
    done = headrace("erase", "a text that no row has", "--yes")
    assert done.returncode == 2 and "no row" in done.stderr
    assert not kept() and not (Store().root / "erasures").exists()


def test_the_card_of_a_dataset_is_from_its_lineage(folder, tmp_path):
    erased(SECRET)
    card = tmp_path / "README.md"
    assert headrace("lineage", "shards", "--card", str(card)).returncode == 0
    text = card.read_text()
    assert "license_name: MIT, unknown" in text and "n<1K" in text
    assert "second.jsonl | 60 |" in text and "MIT (60 rows)" in text
    assert "erased 3" in text and "3 of the rows were taken out on request" in text
    refused = headrace("lineage", "pretrain", "--card", str(card))
    assert refused.returncode == 2 and "is no text" in refused.stderr


def test_a_run_that_cannot_be_carried_out_again_leaves_nothing_in_its_place(folder, tmp_path):
    write_rows(
        tmp_path / "z.jsonl", [{"text": t, "label": "ab"[i % 2]} for i, t in enumerate(texts(8))]
    )
    about = {"data": str(tmp_path / "z.jsonl"), "epochs": 1, "batch_rows": 4}
    sections = BEST_FIT | {"classify": about}
    recipe = recipe_of(folder, **sections)
    made = run_here(planned("all", recipe), recipe, "all")[1]
    (tmp_path / "z.jsonl").unlink()
    remains = {one["what"]: one["why"] for one in erased(SECRET)["remains"]}
    assert "no run of this home" in remains[made["classify"].name]
    assert not made["classify"].path.exists()
    assert all(found_in(planned("pretrain", recipe_of(folder, **BEST_FIT))).values())


def test_what_another_version_made_is_made_anew_in_its_place(folder, monkeypatch):
    from cluster import stage
    from tasks.training.stage import pretrain

    old = found_in(planned("pretrain", recipe_of(folder, **BEST_FIT)))["pretrain"]
    newer = replace(stage.info(pretrain), version=99)
    monkeypatch.setattr(pretrain, "__stage__", newer)
    result = erased(SECRET)
    (model,) = [one for one in result["rebuilt"] if one["artifact"] == old.name]
    assert (model["how"], model["from_step"]) == ("trained", 0)
    now = found_in(planned("pretrain", recipe_of(folder, **BEST_FIT)))
    assert now["pretrain"].name == model["becomes"]
    assert now["report"] is not None and result["replayed"]["share"] == 1.0
    assert not old.path.exists()


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kept", [29, 0])
def test_killed_at_random_moments_the_same_command_leaves_the_same_home(tmp_path, kept):
    """Of a replay, and of a training anew."""
    command = [sys.executable, "-m", "tests.forgetting.killed", str(tmp_path / "killed")]
    command += ["--kept", str(kept), "--points", "8"]
    variables = os.environ | {"OMP_NUM_THREADS": "1"}
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=variables)
    assert ran.returncode == 0, ran.stdout + ran.stderr[-4000:]
    assert ran.stdout.count("as if never") == 8
