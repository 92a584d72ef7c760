"""`headrace trace`: rows and their copies, what has them, who saw them, what they shaped."""

import json

import pytest

from tasks.data.text import read_table
from tests.forgetting.corpus import SECRET, built, built_home, copies, write_recipe, write_rows
from tests.shell import headrace

M, N, K, X = "first.jsonl/m", "first.jsonl/n", "first.jsonl/k", "second.jsonl/x"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trace")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADRACE_HOME", str(folder / "home"))
        yield folder, built_home(folder)


def traced(*arguments):
    done = headrace("trace", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def ids(found):
    return sorted(row["id"] for row in found["rows"])


def shown_at(model, step):
    """The samples of a step that have a piece of document `m`, as `show` decodes them."""
    done = headrace("show", model.name, "--step", str(step), "--json")
    samples = json.loads(done.stdout)["samples"]
    return [s["sample"] for s in samples if any(M in p["documents"] for p in s["pieces"])]


def test_rows_are_found_with_their_copies_and_followed_to_the_steps_that_saw_them(home):
    _, made = home
    found = traced(SECRET.replace(" ", "\n "))
    rows = {row["id"]: row for row in found["rows"]}
    assert sorted(rows) == sorted([M, N, X])  # `k` is less like `m` than near duplicates are
    assert (rows[X]["how"], rows[X]["license"]) == ("holds", "MIT")
    assert (rows[N]["how"], rows[N]["of"]) == ("near", M)
    assert rows[N]["similarity"] == pytest.approx(119 / 129, abs=1e-3)
    has = {a["stage"]: (a["how"], a["rows"], a["rejected"]) for a in found["artifacts"]}
    assert has["read"] == ("holds", 3, {})
    assert has["dedup"] == ("holds", 1, {"exact_duplicate": 1, "near_duplicate": 1})
    assert has["shards"] == ("holds", 1, {})
    assert has["pretrain"][0] == "saw"
    assert has["tokenizer"][0] == has["evaluate"][0] == has["report"][0] == "descends"
    (model,) = found["models"]
    steps = [sample["step"] for sample in found["samples"]]
    assert (model["first"], model["last"], model["steps"]) == (min(steps), max(steps), 30)
    listed = {step: [s["sample"] for s in found["samples"] if s["step"] == step] for step in steps}
    every = {step: shown_at(made["pretrain"], step) for step in range(1, 31)}
    assert listed == {step: samples for step, samples in every.items() if samples}


def test_what_rows_shaped_without_being_in_it_is_listed(home):
    found = {one["stage"]: one for one in traced(SECRET)["influences"]}
    assert "merges" in found["tokenizer"]["how"]
    assert found["dedup"]["ids"] == [K]  # it went for `m`


def test_rows_are_asked_for_by_id_file_pattern_and_license(home):
    folder, made = home
    every = set(read_table(made["read"], ["id"])["id"].to_pylist())
    second = sorted(id for id in every if id.startswith("second"))
    assert ids(traced("--id", "m")) == ids(traced("--id", M)) == sorted([M, N, X])
    assert ids(traced("--pattern", "quixotic +marmalade")) == sorted([M, N, X])
    copied = sorted([*second, M, N])
    assert ids(traced("--license", "mit")) == copied
    assert ids(traced("--file", str(folder / "second.jsonl"))) == copied
    assert ids(traced("--file", "second.jsonl")) == copied
    letter = folder / "letter.txt"
    letter.write_text(copies()["m"])
    assert ids(traced("--file", str(letter))) == sorted([M, N, X])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "nothing given"),
        (["a text", "--id", "m"], "text, id given"),
        (["--pattern", "("], "no regular expression"),
        (["--file", "nowhere.txt"], "no row came from it"),
        ([" "], "an empty text"),
    ],
)
def test_what_cannot_be_asked_is_said(home, arguments, told):
    done = headrace("trace", *arguments)
    assert done.returncode == 2
    assert told in done.stderr


def test_a_row_is_one_entry_however_many_artifacts_have_it(home):
    folder, made = home
    write_rows(folder / "third.jsonl", [{"id": "z", "text": copies()["m"]}])
    source = {"path": str(folder / "first.jsonl"), "id": "id", "license_field": "license"}
    other = {"path": str(folder / "third.jsonl"), "id": "id"}
    from flows.recipe import load

    recipe = load(str(write_recipe(folder, name="other", sources=[source, other])), ())
    again = built(recipe, "data")
    found = traced(SECRET)
    assert ids(found) == sorted([M, N, X, "third.jsonl/z"])
    first = next(row for row in found["rows"] if row["id"] == M)
    assert first["artifact"] == again["read"].name  # as `read` last took it in
    assert made["read"].name in [a["artifact"] for a in found["artifacts"]]


def test_nothing_is_found_of_what_is_nowhere(home):
    found = traced("a text that no row has")
    assert not found["rows"] and not found["samples"] and not found["artifacts"]
