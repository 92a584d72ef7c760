"""Stages of the user's own: placed, cached, explained, run on workers, shown like ours."""

import json
import pickle
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.own import Portable, find
from cluster.stage import build
from cluster.store import Store
from flows.end_to_end import plan
from flows.plan.dag import Dag
from flows.recipe import load
from tasks.data.text import read_table
from tests.shell import headrace

MINE = """
from functools import partial

from headrace import Artifact, Draft, Settings, map_rows, read_batches, stage


class Clean(Settings):
    least: int = 3
    mark: str = ""


def shortened(settings, row):
    if len(row["text"]) < settings.least:
        return "too_short"
    if "drop" in row["text"]:
        return False
    return {"text": row["text"] + settings.mark}


@stage(version=1)
def clean(text: Artifact, settings: Clean, draft: Draft) -> None:
    map_rows(text, draft, partial(shortened, settings))


@stage(version=1)
def count(texts: list[Artifact], vocabulary: Artifact, draft: Draft) -> None:
    lengths = [len(t) for one in texts for b in read_batches(one) for t in b["text"].to_pylist()]
    draft.metrics["characters"] = sum(lengths)
    draft.write_json("lengths.json", {"of": vocabulary.name, "lengths": lengths})


def plain(text: Artifact, draft: Draft) -> None:
    pass
"""


@pytest.fixture
def mine(tmp_path: Path, fresh_home: Path) -> Path:
    (tmp_path / "mine.py").write_text(MINE)
    rows = [f"Text number {number} tells of the mill. " * 20 for number in range(40)]
    lines = [json.dumps({"text": text}) for text in [*rows, "drop this one, please", "x"]]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    return tmp_path


def said(folder: Path, *stages: dict[str, Any], **more: Any) -> list[str]:
    values = {
        "sources": [str(folder / "rows.jsonl")],
        "filters": {"limits": {}},
        "dedup": {"fuzzy": False},
        "shards": {"heldout_share": 0.4},
        "tokenizer": {"vocab_size": 300},
        "stages": list(stages),
        **more,
    }
    return [f"{key}={json.dumps(value)}" for key, value in values.items()]


def cleaning(folder: Path, **settings: Any) -> dict[str, Any]:
    function = f"{folder}/mine.py:clean"
    return {"name": "clean", "function": function, "after": "read", "settings": settings}


def counting(folder: Path, **changed: Any) -> dict[str, Any]:
    inputs = {"texts": ["clean", "redact"], "vocabulary": "tokenizer"}
    return {"name": "count", "function": f"{folder}/mine.py:count", "inputs": inputs, **changed}


def planned(folder: Path, *stages: dict[str, Any]) -> Dag:
    recipe = load("smoke", said(folder, *stages))
    return plan("data", Dag("mine", Store()), recipe)


def named(dag: Dag) -> dict[str, Any]:
    return {node.name: node for node in dag}


def test_it_takes_its_place_and_what_read_the_stage_before_reads_it(mine: Path) -> None:
    found = named(planned(mine, cleaning(mine, least=5), counting(mine)))
    assert list(found)[:3] == ["read", "clean", "filter"]
    assert found["clean"].upstream == {"text": found["read"]}
    assert found["filter"].upstream == {"raw": found["clean"]}
    assert found["count"].upstream["texts"] == [found["clean"], found["redact"]]
    assert found["count"] in found["report"].upstream["artifacts"]


def test_one_may_follow_another(mine: Path) -> None:
    second = {**cleaning(mine), "name": "again", "after": "clean"}
    found = named(planned(mine, second, cleaning(mine)))
    assert found["again"].upstream == {"text": found["clean"]}
    assert found["filter"].upstream == {"raw": found["again"]}


def test_its_file_and_its_settings_are_its_identity_and_say_why_it_is_built(mine: Path) -> None:
    node = named(planned(mine, cleaning(mine)))["clean"]
    text = build(
        named(planned(mine))["read"].function, Store(), **named(planned(mine))["read"].literals
    )
    build(node.function, Store(), spec=node.spec, text=text, **node.literals)
    assert named(planned(mine, cleaning(mine)))["clean"].found
    assert "least 3 -> 9" in named(planned(mine, cleaning(mine, least=9)))["clean"].why
    (mine / "mine.py").write_text(MINE + "\n# changed\n")
    changed = named(planned(mine, cleaning(mine)))["clean"]
    assert not changed.found and changed.why.startswith("code ")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"function": "{}/none.py:clean"}, "none.py cannot be read"),
        ({"function": "{}/mine.py:claen"}, "has no function 'claen': did you mean 'clean'"),
        ({"function": "{}/mine.py:plain"}, "is no stage: write `@stage"),
        ({"function": "mine.clean"}, "not of the form my_stages.py:my_function"),
        ({"settings": {"lest": 3}}, "stages.clean.settings.lest = 3"),
        ({"name": "filter"}, "stages.filter: there is a stage of this name"),
        ({"after": None}, "either `after` or `inputs`"),
        (
            {"function": "{}/mine.py:count"},
            "takes 2 artifacts; behind a stage of text it takes one",
        ),
        ({"after": "raed"}, "no stage of text 'raed'.*did you mean 'read'"),
        (
            {"after": None, "inputs": {"txt": "read"}},
            "takes the artifacts text; `inputs` names",
        ),
        ({"after": None, "inputs": {"text": "redakt"}}, "no stage 'redakt'.*did you mean 'redact'"),
    ],
)
def test_what_is_wrong_is_told_before_anything_runs(
    mine: Path, change: dict[str, Any], words: str
) -> None:
    entry = {**cleaning(mine), **change}
    entry["function"] = entry["function"].format(mine)
    with pytest.raises(BadInput, match=words):
        plan("all", Dag("mine", Store()), load("smoke", said(mine, entry)))


def test_a_file_that_raises_is_named(mine: Path) -> None:
    (mine / "mine.py").write_text(MINE + "\nimport nowhere\n")
    with pytest.raises(BadInput, match=r"mine.py cannot be imported: ModuleNotFoundError"):
        planned(mine, cleaning(mine))


@pytest.mark.parametrize(
    ("answer", "words"),
    [("3", "returned 3: True or None"), ("{'txt': 'a'}", "a column 'txt': did you mean 'text'")],
)
def test_what_no_row_can_be_is_refused(mine: Path, answer: str, words: str) -> None:
    (mine / "mine.py").write_text(MINE + f"\ndef shortened(settings, row):\n    return {answer}\n")
    dag = named(planned(mine, cleaning(mine)))
    text = build(dag["read"].function, Store(), **dag["read"].literals)
    node = dag["clean"]
    with pytest.raises(BadInput, match=words):
        build(node.function, Store(), spec=node.spec, text=text, **node.literals)


@pytest.mark.usefixtures("ray_session")
def test_a_run_carries_it_out_on_workers_that_do_not_have_the_file(
    mine: Path, shared_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(shared_home))
    entries = [cleaning(mine, least=5, mark="!"), counting(mine)]
    values = (one.partition("=") for one in said(mine, *entries))
    recipe = {"name": "own", **{key: json.loads(value) for key, _, value in values}}
    (mine / "own.yaml").write_text(json.dumps(recipe))

    done = headrace("data", str(mine / "own.yaml"), "--json")
    assert done.returncode == 0, done.stderr
    first = json.loads(done.stdout)
    stages = {stage["name"]: stage for stage in first["stages"]}
    assert stages["clean"]["state"] == stages["count"]["state"] == "built"
    rejects = {"shortened": 1, "too_short": 1}
    assert stages["clean"]["ledger"] == {"in": 42, "out": 40, "rejects": rejects}
    table = read_table(Artifact.load(Path(stages["clean"]["artifact"])))
    assert all(text.endswith("mill. !") for text in table["text"].to_pylist())
    assert first["metrics"]["count.characters"] > 1000
    assert "clean" in Path(first["report"]).read_text()
    again = plan("data", Dag("own", Store()), load(str(mine / "own.yaml")))
    assert all(node.found for node in again)


ELSEWHERE = """
import pickle, sys
import headrace
rows = pickle.loads(open(sys.argv[1], "rb").read())
print([rows({"text": text}) for text in ("a", "drop it", "a mill")])
"""


def test_a_function_of_the_file_goes_to_processes_that_do_not_have_it(mine: Path) -> None:
    """As to the workers of all nodes; its settings are of a class of the file."""
    function = find(f"{mine}/mine.py:clean", "clean")
    inside = vars(sys.modules[function.target.__module__])
    settings = inside["Clean"](least=3, mark="!")
    packed = pickle.dumps(Portable(partial(inside["shortened"], settings)))
    (mine / "packed").write_bytes(packed)
    (mine / "mine.py").unlink()
    command = [sys.executable, "-c", ELSEWHERE, str(mine / "packed")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['too_short', False, {'text': 'a mill!'}]"
