"""Exams of ours as tasks of lm-evaluation-harness: a YAML file and JSON lines in a folder.

    headrace exam MODEL capitals.yaml --write-tasks FOLDER

What is asked is the same, letter for letter. Of the figures, `acc` is our accuracy_unnormalised and
`exact_match` our accuracy; what differs is said in the file's head.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from cluster.errors import BadInput
from cluster.files import write_atomically
from tasks.data.row_files import read_row_file, write_json_lines
from tasks.evaluation.exams.definition import Exam, Row, read_rows, render

PLAIN_FIELD = re.compile(r"{([A-Za-z_][A-Za-z0-9_]*)}")
WRITTEN = "prompt_text"
"""The column of prompts that cannot be written as a template of Jinja."""
NOTES = {
    "choice": "acc_bytes counts a choice's bytes without the space before it, Headrace's accuracy "
    "with it",
    "exact": "with `normalise` white space does not count at all",
    "overlap": "",
    "perplexity": "Headrace counts the end of a document among its tokens",
}
KINDS = {
    "choice": "multiple_choice",
    "exact": "generate_until",
    "overlap": "generate_until",
    "perplexity": "loglikelihood_rolling",
}
ARTICLES = r"(?i)\b(a|an|the)\b"


def write_task(exam: Exam, folder: Path) -> Path:
    """Write an exam there; the path of its YAML. Raises BadInput for one that is no task: whose
    answers are code, or graded by a metric that is not known there.
    """
    if exam.kind not in KINDS:
        raise BadInput(
            f"exam {exam.name} is of kind {exam.kind}, which takes Python code in a task of "
            f"lm-evaluation-harness; {', '.join(KINDS)} are written"
        )
    rows = read_rows(exam)
    folder.mkdir(parents=True, exist_ok=True)
    files = {"test": folder / f"{exam.name}.test.jsonl"}
    write_json_lines(files["test"], _columns(exam, rows))
    if exam.shots and exam.examples is not None:
        files["examples"] = folder / f"{exam.name}.examples.jsonl"
        shown = [{"line": n, **row} for n, row in read_row_file(Path(exam.examples))]
        write_json_lines(files["examples"], _columns(exam, shown[: exam.shots]))
    values = _head(exam, files) | _asked(exam) | _graded(exam, rows)
    note = f"# {NOTES[exam.kind]}.\n" if NOTES[exam.kind] else ""
    path = folder / f"{exam.name}.yaml"
    text = yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=100)
    write_atomically(path, f"# An exam of Headrace.\n{note}{text}")
    return path


def _columns(exam: Exam, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Rows as they are written: without the number of their line and, where the prompt cannot be a
    template of Jinja, with the prompt in a column of its own.
    """
    found = [{k: v for k, v in row.items() if k != "line"} for row in rows]
    if _jinja(exam.prompt) is None:
        for written, row in zip(found, rows, strict=True):
            written[WRITTEN] = render(exam, row)
    return found


def _jinja(prompt: str) -> str | None:
    """The prompt as a template of Jinja, where all its braces are about plain fields."""
    rest = PLAIN_FIELD.sub("", prompt)
    return None if "{" in rest or "}" in rest else PLAIN_FIELD.sub(r"{{\1}}", prompt)


def _head(exam: Exam, files: Mapping[str, Path]) -> dict[str, Any]:
    named = {split: str(path.resolve()) for split, path in files.items()}
    return {
        "task": exam.name,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": named},
        "test_split": "test",
        "output_type": KINDS[exam.kind],
    }


def _asked(exam: Exam) -> dict[str, Any]:
    """The question and its examples, of which the first are taken in their order."""
    template = _jinja(exam.prompt)
    question = WRITTEN if template is None else template
    if exam.kind == "perplexity":
        return {"doc_to_text": "", "doc_to_target": question}
    found: dict[str, Any] = {
        "doc_to_text": question,
        "target_delimiter": "" if exam.prompt[-1:].isspace() else " ",
    }
    if exam.shots:
        few = {"sampler": "first_n", "split": "examples"}
        found |= {"num_fewshot": exam.shots, "fewshot_config": few}
    return found


def _graded(exam: Exam, rows: Sequence[Row]) -> dict[str, Any]:
    if exam.kind == "perplexity":
        return {"metric_list": [{"metric": "bits_per_byte"}, {"metric": "byte_perplexity"}]}
    if exam.kind == "choice":
        metrics = [{"metric": "acc"}, {"metric": "acc_bytes"}]
        return {"doc_to_choice": "choices", "doc_to_target": "answer", "metric_list": metrics}
    write = {"until": exam.stop, "max_gen_toks": exam.max_tokens, "do_sample": False}
    if exam.kind == "overlap":
        return {"generation_kwargs": write} | _overlap(exam, rows)
    steps = [{"function": "remove_whitespace"}, {"function": "take_first"}]
    if exam.pattern is not None:
        steps.insert(0, {"function": "regex", "regex_pattern": exam.pattern})
    match: dict[str, Any] = {"metric": "exact_match"}
    if exam.normalise:
        match |= {"ignore_case": True, "ignore_punctuation": True}
        match["regexes_to_ignore"] = [ARTICLES, r"\s+"]
    return {
        "generation_kwargs": write,
        "doc_to_target": "answers",
        "filter_list": [{"name": "answer", "filter": steps}],
        "metric_list": [match],
    }


def _overlap(exam: Exam, rows: Sequence[Row]) -> dict[str, Any]:
    known = ("bleu", "chrf", "chrf++")
    if exam.metric not in known or any(len(row["references"]) > 1 for row in rows):
        raise BadInput(
            f"exam {exam.name}: {exam.metric} of rows with up to "
            f"{max(len(row['references']) for row in rows)} references is no metric of "
            f"lm-evaluation-harness; {', '.join(known)} of one reference are"
        )
    steps = [{"function": "remove_whitespace"}, {"function": "take_first"}]
    return {
        "doc_to_target": "{{references[0]}}",
        "filter_list": [{"name": "answer", "filter": steps}],
        "metric_list": [{"metric": exam.metric}],
    }
