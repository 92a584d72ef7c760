"""Tasks of lm-evaluation-harness: read, asked letter for letter as it would, graded as it would."""

import json
import math
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.errors import BadInput
from cluster.store import Store
from tasks.evaluation.exams.candidates import LocalCandidate
from tasks.evaluation.exams.definition import read_exam, read_rows, read_shots, render
from tasks.evaluation.exams.harness.filters import filtered
from tasks.evaluation.exams.harness.metrics import column, exact_match
from tasks.evaluation.exams.harness.reading import read_task
from tasks.evaluation.exams.harness.requests import asked
from tasks.evaluation.exams.harness.task import Task
from tasks.evaluation.exams.results import NamedCandidate, named_candidates, shown, take_exam

ROWS = [
    {"q": f"Is {n} even?", "hint": f"half of it is {n / 2:g}", "label": n % 2, "n": n}
    for n in range(1, 8)
]
BASE = """
dataset_path: json
dataset_kwargs: {data_files: {train: seen.jsonl, test: asked.jsonl}}
test_split: test
tag: made_up
metadata: {version: 2.0}
"""
PARITY = """
include: base.yaml
task: parity
output_type: multiple_choice
fewshot_split: train
num_fewshot: 2
description: "Numbers.\\n\\n"
doc_to_text: "{{q}} ({{hint | regex_replace('half', 'HALF')}})\\n"
doc_to_target: "{{1 - label}}"
doc_to_choice: "{{['no', 'yes, ' ~ n]}}"
gen_prefix: "It is"
fewshot_config: {gen_prefix: "So", target_delimiter: "~", fewshot_delimiter: "\\n--\\n"}
metric_list:
  - {metric: acc, aggregation: mean, higher_is_better: true}
  - {metric: acc_norm}
  - {metric: mcc}
  - {metric: acc_mutual_info}
"""
FILLED = """
include: base.yaml
task: filled
output_type: multiple_choice
doc_to_text: label
doc_to_choice: "{{[q, hint]}}"
doc_to_target: "{{n}} is it."
"""
DONE = """
include: [base.yaml]
task: done
output_type: generate_until
test_split: null
validation_split: test
num_fewshot: 1
doc_to_text: "Q: {{q}}\\nA:"
doc_to_target: "{{['odd', 'not even'] if label else 'even'}}"
generation_kwargs: {max_gen_toks: 4, temperature: 0}
metric_list: [{metric: exact_match, ignore_case: true, regexes_to_ignore: ["\\\\."]}]
filter_list:
  - {name: first, filter: [{function: regex, regex_pattern: "(\\\\w+)"}, {function: take_first}]}
  - {name: whole, filter: [{function: remove_whitespace}, {function: take_first}]}
"""
LAST = """
include: base.yaml
task: last
output_type: loglikelihood
num_fewshot: 1
fewshot_config: {sampler: first_n}
training_split: train
doc_to_text: "{{q.split()[0]}}"
doc_to_target: "{{' ' ~ n}}"
"""
WHOLE = """
include: base.yaml
task: whole
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{q}} {{hint}}"
"""
GROUP = """
group: made
task: [parity, {group: more, task: [filled, {task: last, num_fewshot: 0}]}]
aggregate_metric_list:
  - {metric: acc, weight_by_size: true}
  - {metric: acc_norm, weight_by_size: false}
"""
FILES = {
    "base": BASE,
    "parity": PARITY,
    "filled": FILLED,
    "done": DONE,
    "last": LAST,
    "whole": WHOLE,
    "made": GROUP,
}
NAMES = ("parity", "filled", "done", "last", "whole")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tasks, with whole paths: the harness looks for data in the working directory."""
    found = tmp_path_factory.mktemp("tasks")
    for name, text in FILES.items():
        for data in ("seen.jsonl", "asked.jsonl"):
            text = text.replace(data, str(found / data))
        (found / f"{name}.yaml").write_text(text)
    for name, rows in (("seen", ROWS[3:]), ("asked", ROWS[:3])):
        (found / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return found


def requests(path: Path) -> list[Any]:
    task = read_task(path)
    assert isinstance(task, Task)
    return [request for row in asked(task) for request in row.requests]


def local(tiny: Any) -> NamedCandidate:
    (found,) = named_candidates(Store(), str(tiny.model.path))
    return found


def test_requests_are_those_that_the_harness_made(folder: Path) -> None:
    """Recorded from lm-evaluation-harness 0.4.13; the seed decides who is an example."""
    first, second, alone, _ = requests(folder / "parity.yaml")[:4]
    assert first == (
        "Numbers.\n\nIs 7 even? (HALF of it is 3.5)\nSo no\n--\nIs 4 even? (HALF of it is 2)\n"
        "So yes, 4\n--\nIs 1 even? (HALF of it is 0.5)\nIt is",
        " no",
    )
    assert second == (first[0], " yes, 1") and alone == ("", " no")
    assert requests(folder / "filled.yaml")[:2] == [
        ("Is 1 even?", " 1 is it."),
        ("half of it is 0.5", " 1 is it."),
    ]
    prompt, how = requests(folder / "done.yaml")[1]
    assert prompt == "Q: Is 1 even?\nA: odd\n\nQ: Is 2 even?\nA:"
    assert how == {"max_gen_toks": 4, "temperature": 0.0, "until": ["\n\n"]}
    assert requests(folder / "last.yaml")[0] == ("Is  4\n\nIs", " 1")
    assert requests(folder / "whole.yaml")[0] == ("Is 1 even? half of it is 0.5",)


@pytest.mark.skipif(find_spec("lm_eval") is None, reason="needs lm-eval")
def test_requests_are_those_that_the_harness_makes(folder: Path) -> None:
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_path=str(folder), include_defaults=False)
    for name, task in manager.load([*NAMES])["tasks"].items():
        task.set_config(key="num_fewshot", value=task.get_config("num_fewshot") or 0)
        task.set_fewshot_seed(seed=1234)
        task.build_all_requests()
        assert [one.args for one in task.instances] == requests(folder / f"{name}.yaml"), name


def test_a_group_has_the_means_of_its_tasks(tiny: Any, folder: Path, fresh_home: Path) -> None:
    result = shown(take_exam(Store(), local(tiny), folder / "made.yaml")[0])
    values = {name: one["value"] for name, one in result["results"].items()}
    sizes = {name: one["n"] for name, one in result["results"].items()}
    members = ("parity", "filled", "last")
    assert list(values)[:2] == ["acc", "acc_norm"] and sizes["acc"] == 9
    assert values["acc"] == pytest.approx(sum(values[f"{name}/acc"] for name in members) / 3)
    means = (values["parity/acc_norm"] + values["filled/acc_norm"]) / 2
    assert values["acc_norm"] == pytest.approx(means)
    low, high = result["results"]["acc"]["interval"]
    assert low <= values["acc"] <= high and result["kind"] == "group"
    rows = {row["id"]: row for row in result["rows"]}
    first = rows["parity/1"]
    assert first["right"] == (first["answer"] == "no") and len(first["nats"]) == 4
    perplexity = math.exp(-sum(rows[f"last/{n}"]["nats"] for n in (1, 2, 3)) / 3)
    assert values["last/perplexity"] == pytest.approx(perplexity)
    assert "lm-eval:0.4.13" in result["signature"] and "/" not in result["exam"]
    (tagged,) = [read_exam(folder / "made_up")]
    assert {task.task for task in tagged.tasks} == set(NAMES)


def test_a_recipe_takes_them(folder: Path, fresh_home: Path) -> None:
    from typer.testing import CliRunner

    from flows.cli import app

    exams = f"evaluate.exams=[{folder / 'made.yaml'}]"
    done = CliRunner().invoke(app, ["plan", "smoke", "--set", exams, "--json"])
    assert "exam/made" in {stage["name"] for stage in json.loads(done.stdout)["stages"]}


def test_written_answers_are_filtered_and_texts_are_rolled_over(
    tiny: Any, folder: Path, fresh_home: Path
) -> None:
    result = shown(take_exam(Store(), local(tiny), folder / "done.yaml")[0])
    assert list(result["results"]) == ["exact_match/first", "exact_match/whole"]
    row = result["rows"][0]
    assert row["answer/whole"] == row["answer"].strip()
    assert result["results"]["exact_match/first"]["baseline"] == pytest.approx(2 / 3)
    result = shown(take_exam(Store(), local(tiny), folder / "whole.yaml")[0])
    rows = result["rows"]
    nats, size = sum(row["nats"] for row in rows), sum(row["bytes"] for row in rows)
    assert result["bits_per_byte"] == pytest.approx(-nats / math.log(2) / size)
    assert result["byte_perplexity"] == pytest.approx(math.exp(-nats / size))
    assert result["word_perplexity"] == pytest.approx(math.exp(-nats / (3 * 8)))
    assert result["better"] == "lower"


def test_a_long_text_is_read_in_windows_of_the_whole_context(tiny: Any) -> None:
    """Each token once, the last ones behind as much as there is room for."""
    import torch

    from tasks.inference.generation import load_model

    network, encoder = load_model(tiny.model.path)
    text = "def add_1(left, right): größer " * 16
    ids = [encoder.eod, *encoder.encode(text)]
    context = network.config.context
    assert context < len(ids) < 2 * context
    with torch.inference_mode():
        total = 0.0
        for window, kept in ((ids[: context + 1], context), (ids[-context - 1 :], len(ids) - 1)):
            scores = network.logits(network(torch.tensor([window[:-1]])))[0].log_softmax(-1)
            taken = scores.gather(-1, torch.tensor(window[1:])[:, None])[:, 0]
            total += float(taken[-(kept if kept == context else kept - context) :].sum())
    (found,) = LocalCandidate(tiny.model.path).loglikelihood_rolling([text], lambda *_: None)
    assert (found.nats, found.tokens) == (pytest.approx(total, abs=1e-3), len(ids) - 1)


def test_texts_are_parted_where_the_first_ones_tokens_end(tiny: Any) -> None:
    """Spaces at the end of a context belong to what follows; likely ones are told as such."""
    candidate = LocalCandidate(tiny.model.path)
    pairs = [("def add", "_1(left"), ("def add ", "x"), ("def add", " x"), ("", "def"), (" ", "d")]
    found = candidate.loglikelihood(pairs, lambda *_: None)
    assert found[1] == found[2]
    (written,) = candidate.write(["def add"], 3, [], lambda *_: None)
    (greedy,) = candidate.loglikelihood([("def add", str(written))], lambda *_: None)
    assert greedy.greedy and not found[0].greedy
    with pytest.raises(BadInput, match="it must be from 1 to 128"):
        candidate.loglikelihood([("a", "größer " * 200)], lambda *_: None)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"process_docs": "!function utils.clean"}, "process_docs is !function utils.clean"),
        ({"doc_to_text": "!function utils.text"}, "write doc_to_text as a template"),
        ({"metric_list": [{"metric": "!function utils.f1"}]}, "its own metrics are acc"),
        ({"doc_to_text": "{{q.__class__.__mro__}}"}, "unsafe"),
        ({"doc_to_text": "{{question}}"}, "'question' is undefined"),
        ({"metric_list": [{"metric": "bleu"}]}, "'bleu' is not one of multiple_choice"),
        ({"test_split": "dev"}, "no split 'dev'; its data files have train, test"),
        ({"doc_to_target": "{{7}}"}, "the target 7 is none of 2 choices"),
        ({"num_fewshot": 9}, "num_fewshot is 9; there are 4 rows"),
        ({"doc_to_textt": "a"}, "'doc_to_textt': did you mean 'doc_to_text'"),
        ({"filter_list": [{"name": "a", "filter": [{"function": "custom"}]}]}, "unknown filter"),
        ({"include": "parity.yaml"}, "includes itself"),
        ({"include": "absent.yaml"}, "absent.yaml cannot be read: No such file"),
        ({"dataset_path": "org"}, "is no folder here; write json, csv"),
        ({"generation_kwargs": {"do_sample": True}}, "draws samples"),
    ],
)
def test_what_is_not_read_is_refused_by_name(
    folder: Path, tmp_path: Path, keys: dict[str, Any], words: str
) -> None:
    named = {"include": str(folder / "parity.yaml"), "task": "mine"} | keys
    text = yaml.safe_dump(named).replace("'!function", "!function").replace("1'", "1")
    for name in ("clean", "text", "f1"):
        text = text.replace(f"utils.{name}'", f"utils.{name}")
    path = tmp_path / "parity.yaml"
    path.write_text(text)
    with pytest.raises(BadInput, match=words):
        task = read_task(path)
        from tasks.evaluation.exams.harness.grading import grade_task

        grade_task(task, asked(task), None, lambda *_: None)  # type: ignore[arg-type]


def test_likelihoods_that_say_nothing_are_no_answers(
    tiny: Any, folder: Path, fresh_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither all alike nor missing ones are taken for the first choice."""
    from model.generation.choices import Scored

    for nats, words in ((-1.0, "all choices are equally likely"), (math.nan, "no log-probability")):
        monkeypatch.setattr(
            LocalCandidate,
            "_score",
            lambda self, asked, progress, n=nats: [[Scored(n, False)] * len(b) for _, b in asked],
        )
        for path in (folder / "parity.yaml", ours(fresh_home.parent, "choice")):
            with pytest.raises(BadInput, match=words):
                take_exam(Store(), local(tiny), path)


def test_an_endpoint_tells_likelihoods_by_echoes_or_is_refused(
    endpoint: Any, scripted: Any, folder: Path, fresh_home: Path
) -> None:
    def script(body: dict[str, Any], call: int) -> Any:
        letters, here = [*body["prompt"], "!"], body["prompt"].endswith("1")
        nats = [None, *(-0.5 if here else -1.5 for _ in letters[1:])]
        told = {
            "tokens": letters,
            "token_logprobs": nats,
            "top_logprobs": [None, *({"x": -0.5} for _ in letters[1:])],
            "text_offset": list(range(len(letters))),
        }
        choice = {"text": "".join(letters), "logprobs": told if lists else None}
        return scripted(body=json.dumps({"choices": [choice]}).encode())

    lists, endpoint.script = True, script
    who = NamedCandidate("some-model", url=endpoint.url)
    result = shown(take_exam(Store(), who, folder / "last.yaml")[0])
    assert [row["nats"] for row in result["rows"]] == [-1.0, -3.0, -3.0]
    assert result["acc"] == pytest.approx(1 / 3)
    assert {"echo": True, "logprobs": 1, "max_tokens": 1}.items() <= endpoint.bodies[0].items()
    lists = False
    with pytest.raises(BadInput, match="sends no log-probabilities with an echo"):
        take_exam(Store(), NamedCandidate("other", url=endpoint.url), folder / "last.yaml")
    with pytest.raises(BadInput, match="tells nothing of a text's first token"):
        take_exam(Store(), who, folder / "whole.yaml")


def ours(folder: Path, kind: str, **more: Any) -> Path:
    folder.mkdir(exist_ok=True)
    rows = [
        {
            "id": n,
            "q": f"Half of {2 * n}?",
            "choices": ["one", f"{n}"],
            "answer": 1,
            "answers": ["x"],
        }
        for n in range(3)
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "solved.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[:2]))
    exam = {"name": "halves", "kind": kind, "rows": "rows.jsonl", "prompt": "Q: {q}\nA:"} | more
    path = folder / "halves.yaml"
    path.write_text(yaml.safe_dump(exam))
    return path


@pytest.mark.parametrize("prompt", ["Q: {q}\nA:", "{{q}} {q} {choices[0]} "])
def test_an_exam_of_ours_is_written_as_a_task_that_asks_the_same(
    tiny: Any, tmp_path: Path, fresh_home: Path, prompt: str
) -> None:
    from typer.testing import CliRunner

    from flows.cli import app

    path = ours(tmp_path / "exam", "choice", prompt=prompt, shots=2, examples="solved.jsonl")
    told = [
        "exam",
        str(tiny.model.path),
        str(path),
        "--write-tasks",
        str(tmp_path / "to"),
        "--json",
    ]
    done = CliRunner().invoke(app, told)
    result = json.loads(done.stdout)
    assert result["tasks"] == [str(tmp_path / "to" / "halves.yaml")]
    exam = read_exam(path)
    shots = read_shots(exam)  # type: ignore[arg-type]
    space = "" if prompt.endswith(" ") else " "
    assert requests(tmp_path / "to" / "halves.yaml") == [
        (shots + render(exam, row), f"{space}{choice}")  # type: ignore[arg-type]
        for row in read_rows(exam)  # type: ignore[arg-type]
        for choice in row["choices"]
    ]


def test_written_exams_keep_their_grading(tmp_path: Path) -> None:
    from tasks.evaluation.exams.harness.writing import write_task

    path = ours(tmp_path / "exam", "exact", pattern=r"is (\d+)", normalise=True, stop=["\n", "Q"])
    task = read_task(write_task(read_exam(path), tmp_path / "to"))  # type: ignore[arg-type]
    assert task.until == ["\n", "Q"] and task.metrics[0].ignore_case
    steps = task.filter_list[0].filter
    assert filtered(steps, [" it is 7, is 8"], {}) == "7"
    with pytest.raises(BadInput, match="is of kind code"):
        write_task(read_exam(ours(tmp_path / "code", "code")), tmp_path / "to")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("steps", "text", "taken"),
    [
        ([{"function": "regex", "regex_pattern": r"(\d+)|(x)", "group_select": -1}], "1 x", "x"),
        ([{"function": "regex"}], "no number", "[invalid]"),
        ([{"function": "lowercase"}, {"function": "map", "mapping_dict": {"a": "b"}}], "A", "b"),
        ([{"function": "majority_vote"}, {"function": "uppercase"}], "a", "A"),
        (
            [{"function": "multi_choice_regex", "regex_pattern": r"(\([A-Z]\))"}],
            "the sea: B",
            "(B)",
        ),
        ([{"function": "multi_choice_regex", "ignore_case": True}], "So SKY it is", "(A)"),
    ],
)
def test_filters_take_what_the_harness_takes(steps: Any, text: str, taken: str) -> None:
    assert filtered(steps, [text], {"choices": ["sky", "Sea!"]}) == taken


def test_figures_are_put_together_over_rows() -> None:
    from sklearn.metrics import f1_score, matthews_corrcoef

    pairs = [(0, 1), (1, 1), (1, 0), (0, 0), (1, 1)]
    gold, taken = zip(*pairs, strict=True)
    assert column("f1", pairs).figure() == pytest.approx(f1_score(gold, taken))
    assert column("mcc", [*pairs, (2, 2)]).figure() == pytest.approx(
        matthews_corrcoef([*gold, 2], [*taken, 2])
    )
    plain = {"ignore_case": False, "ignore_punctuation": True, "ignore_numbers": True}
    assert exact_match("a, 1b", ["c", "a b!"], regexes_to_ignore=["2"], **plain) == 1.0
    with pytest.raises(ValueError, match="f1 is of two classes"):
        column("f1", [(0, 2)])


def test_rows_come_from_tables_folders_and_the_hub(
    tmp_path: Path, fresh_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `datasets` types and finds them: 1 beside 1.5 is 1.0; a card says which files are what."""
    from tasks.evaluation.exams.harness import datafiles
    from tasks.evaluation.exams.harness.documents import read_split

    def rows(**keys: Any) -> list[dict[str, Any]]:
        path = tmp_path / "mine.yaml"
        path.write_text(yaml.safe_dump({"task": "mine", "test_split": "test", **keys}))
        task = read_task(path)
        assert isinstance(task, Task)
        return read_split(task, "test").rows

    data = tmp_path / "data"
    data.mkdir()
    (data / "my_test.jsonl").write_text('{"a": 1, "b": "x"}\n{"a": 1.5}\n')
    (data / "train-0.csv").write_text("a,b\n1,\n2,NA\n")
    found = rows(dataset_path="data")
    assert found == [{"a": 1.0, "b": "x"}, {"a": 1.5, "b": None}]
    table = {"data_files": {"test": "data/*.csv"}, "header": None, "column_names": ["p", "q"]}
    assert rows(dataset_path="csv", dataset_kwargs=table)[1] == {"p": "1", "q": None}
    text = {"data_files": {"test": ["data/train-0.csv"]}}
    assert rows(dataset_path="text", dataset_kwargs=text)[0] == {"text": "a,b"}

    def fetched(name: str, folder: Path, kind: str, wanted: list[str]) -> Path:
        asked_for.append((name, kind, wanted))
        folder.mkdir(parents=True, exist_ok=True)
        files = "configs:\n- config_name: en\n  data_files: [{split: test, path: en/part*.jsonl}]\n"
        (folder / "README.md").write_text(f"---\n{files}---\n# Rows\n")
        (folder / "en").mkdir(exist_ok=True)
        (folder / "en" / "part-1.jsonl").write_text('{"a": "hub"}\n')
        return folder

    asked_for: list[Any] = []
    monkeypatch.setattr(datafiles, "from_hub", fetched)
    kwargs = {"revision": "v1", "trust_remote_code": True}
    hub = {"dataset_path": "hf://org/name", "dataset_name": "en", "dataset_kwargs": kwargs}
    assert rows(**hub) == [{"a": "hub"}]
    assert asked_for[1] == ("org/name@v1", "dataset", ["README.md", "en/part*.jsonl"])
    with pytest.raises(BadInput, match="no configuration 'de'; it has en"):
        rows(**hub | {"dataset_name": "de"})
