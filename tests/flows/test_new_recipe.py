"""`headrace init` and `headrace schema`: a recipe to begin with, and what editors know of it."""

import gzip
import json
import re
from pathlib import Path

import jsonschema
import pytest
import yaml

from cluster.errors import BadInput
from flows.commands.new_recipe import SCHEMA, joined, write_recipe
from flows.recipe import SHIPPED, load
from flows.schema import recipe_schema


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    for name in ("a", "b", "c"):
        row = {"title": name, "body": f"The mill of {name} turns by the water of the headrace."}
        (tmp_path / "data" / f"{name}.jsonl").write_text(json.dumps(row) + "\n")
    (tmp_path / "notes.txt").write_text("Water runs down to the mill.")
    return tmp_path


def test_a_shells_list_of_files_is_a_pattern_again_and_the_field_is_found() -> None:
    path = write_recipe(["data/a.jsonl", "data/b.jsonl", "data/c.jsonl"], None, None)
    recipe = load(str(path))
    assert (path, recipe.name) == (Path("data.yaml"), "data")
    assert [(s.path, s.text) for s in recipe.sources] == [("data/*.jsonl", "body")]
    assert recipe.sweep is recipe.classify is recipe.instruct is None
    assert "of title, body" in path.read_text()


def test_every_part_can_be_named(folder: Path) -> None:
    path = write_recipe(["data", "out/ours.yml"], "mill", "title")
    recipe = load(str(path))
    assert (str(path), recipe.name) == ("out/ours.yml", "mill")
    assert [(s.path, s.text) for s in recipe.sources] == [("data", "title")]
    several = load(str(write_recipe(["notes.txt", "data/a.jsonl"], None, None)))
    assert several.name == "notes"
    assert [(s.path, s.text) for s in several.sources] == [
        ("notes.txt", "text"),
        ("data/a.jsonl", "body"),
    ]


def test_a_table_in_another_encoding_says_so(folder: Path) -> None:
    rows = "N°;Texte\n" + "".join(f"{n};Größe und Süße der Mühle\n" for n in range(20))
    (folder / "tickets.csv").write_bytes(rows.encode("cp1252"))
    (source,) = load(str(write_recipe(["tickets.csv"], None, "Texte"))).sources
    assert (source.encoding, source.text) == ("auto", "Texte")
    with pytest.raises(BadInput, match=r"has the fields N., Texte$"):
        write_recipe(["tickets.csv", "other.yaml"], None, "text")


def test_a_damaged_or_empty_file_does_not_keep_the_others_from_being_looked_at(
    folder: Path,
) -> None:
    rows = b'{"title": "a", "body": "The mill turns."}\n'
    (folder / "mixed").mkdir()
    (folder / "mixed" / "a.jsonl").write_bytes(b"")
    (folder / "mixed" / "b.jsonl.gz").write_bytes(gzip.compress(rows * 9)[:-9])
    (folder / "mixed" / "c.csv").write_text('"a" b,c\n')
    with pytest.raises(BadInput, match=r"b\.jsonl\.gz is damaged|c\.csv"):
        write_recipe(["mixed"], None, None)
    (folder / "mixed" / "d.jsonl").write_bytes(rows)
    written = write_recipe(["mixed"], None, None)
    (source,) = load(str(written)).sources
    assert (source.on_damaged, source.text) == ("skip", "body")
    assert "b.jsonl.gz is damaged" in written.read_text()


def test_without_text_it_is_of_the_embedded_corpus() -> None:
    recipe = load(str(write_recipe([], None, None)))
    assert (recipe.name, recipe.sources[0].path) == ("mine", "python://stdlib")
    assert recipe.filters.preset == "code"


def test_what_is_there_is_left_as_it_is(folder: Path) -> None:
    (folder / "data.yaml").write_text("mine")
    with pytest.raises(BadInput, match=r"data\.yaml is there already"):
        write_recipe(["data"], None, None)
    assert (folder / "data.yaml").read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "name", "text", "message"),
    [
        (["nowhere/*.txt"], None, None, "matches no file"),
        (["data/d.jsonl"], None, None, "does not exist"),
        (["data"], "my mill", None, "my mill"),
        (["data"], None, "boody", "has the fields title, body"),
        (["one.yaml", "two.yaml"], None, None, "one recipe is written at a time"),
    ],
)
def test_what_cannot_become_a_recipe_is_refused_and_nothing_written(
    folder: Path, arguments: list[str], name: str | None, text: str | None, message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        write_recipe(arguments, name, text)
    assert not list(folder.rglob("*.y*ml"))


def test_odd_names_are_quoted(folder: Path) -> None:
    odd = folder / "it's: a #1 {folder}"
    odd.mkdir()
    (odd / "x.jsonl.gz").write_bytes(gzip.compress(b'{"raw: text": "water", "id": 1}\n'))
    recipe = load(str(write_recipe([str(odd)], None, None)))
    assert recipe.sources[0].path == str(odd) and recipe.sources[0].text == "raw: text"
    assert re.fullmatch("it-s-a-1-folder", recipe.name)


def test_a_pattern_is_guessed_only_where_it_means_the_same(folder: Path) -> None:
    files = [f"data/{name}.jsonl" for name in "abc"]
    assert joined(files) == ["data/*.jsonl"]
    assert joined(files[:2]) == files[:2]
    (folder / "data" / "d.jsonl").touch()
    assert joined(files) == files


def test_the_commented_settings_are_valid_too(folder: Path) -> None:
    """What a comment of the recipe shows can be used by taking the comment sign away."""
    path = write_recipe(["data"], None, None)
    lines = path.read_text().splitlines()
    path.write_text("\n".join(re.sub(r"^# (?=over:|seeds:|one_at)", "", one) for one in lines))
    recipe = load(str(path))
    assert (recipe.seeds, recipe.one_at_a_time, list(recipe.over)) == (
        5,
        True,
        ["model.depth", "pretrain.optimizer.learning_rate"],
    )


def test_the_schema_takes_every_recipe_and_describes_every_key(folder: Path) -> None:
    schema = json.loads(json.dumps(recipe_schema()))
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    recipes = [*SHIPPED.glob("*.yaml"), write_recipe(["data"], None, None)]
    for path in recipes:
        validator.validate(yaml.safe_load(path.read_text()))
    validator.validate({"name": "x", "sources": ["a.txt"], "seed": "1_000", "model": {"depth": 6}})
    assert schema["properties"]["seeds"]["description"].startswith("trainings of each variant")
    training = schema["$defs"]["PretrainSettings"]["properties"]
    assert all("description" in training[key] for key in ("tokens", "batch_tokens", "context"))


@pytest.mark.parametrize(
    "values",
    [
        {"name": "x"},
        {"name": "x", "sources": ["a.txt"], "modle": {}},
        {"name": "x", "sources": ["a.txt"], "model": {"dept": 3}},
        {"name": "x", "sources": ["a.txt"], "seed": "many"},
        {"name": "x", "sources": ["a.txt"], "filters": {"preset": "best"}},
    ],
)
def test_the_schema_refuses_what_a_run_would(values: dict[str, object]) -> None:
    assert not jsonschema.Draft202012Validator(recipe_schema()).is_valid(values)


def test_a_schema_beside_the_recipe_is_named_in_it(folder: Path) -> None:
    (folder / SCHEMA).write_text(json.dumps(recipe_schema()))
    text = write_recipe(["data"], None, None).read_text()
    assert f"# yaml-language-server: $schema={SCHEMA}\n" in text
