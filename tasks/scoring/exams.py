"""Exams: questions with known answers, put to any model folder, defined in YAML.

    headrace exam MODEL EXAM.yaml --json

    name: capitals
    kind: choice                # choice | exact | code
    rows: capitals.jsonl        # beside the YAML
    prompt: "Question: {question}\\nAnswer:"
    max_tokens: 32

Rows have the fields of the prompt and, by kind: `choices` and `answer`, the number of the right one
(the likeliest is chosen, per byte); `answers`, any of which is right word for word; `tests`, Python
that must run to its end behind the answer, in a process of its own with limits.
"""

import ast
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import yaml
from pydantic import Field, ValidationError

from cluster.errors import BadInput
from cluster.settings import Settings

if TYPE_CHECKING:
    from model.generation import Network
    from tasks.tokens.encoder import Encoder

SECONDS, MEMORY = 10, 1 << 30
LIMITS = (
    f"import resource as r; r.setrlimit(r.RLIMIT_AS, ({MEMORY}, {MEMORY})); "
    f"r.setrlimit(r.RLIMIT_CPU, ({SECONDS}, {SECONDS})); r.setrlimit(r.RLIMIT_NPROC, (0, 0)); del r"
)


class Exam(Settings):
    """What is asked, and how it is marked."""

    name: str = Field(description="of the exam")
    kind: Literal["choice", "exact", "code"] = Field(description="how an answer is marked")
    rows: str = Field(description="JSON lines, relative to the YAML file")
    prompt: str = Field("{question}", description="with fields of a row in braces")
    max_tokens: int = Field(32, ge=1, description="tokens of an answer at most")
    stop: list[str] = Field(["\n"], description="texts before which an answer ends")


def sit_file(folder: Path, path: Path) -> dict[str, Any]:
    """Put an exam to a model folder: `accuracy` with its 95 % `interval`, `random` (that of
    guessing, for choices), `rows` [{`id`, `right`, `answer`, `reason`}], `signature`.

    Raises BadInput for an unusable exam, naming the line.
    """
    from tasks.generation import load_model, start_ids
    from tasks.scoring.doubt.statistics import mean_interval

    exam, rows = read_exam(path)
    network, encoder = load_model(folder)
    start = start_ids(folder, network, encoder)
    marked = []
    for number, row in enumerate(rows, 1):
        prompt = _prompt(exam, row, path, number)
        if exam.kind == "choice":
            marked.append(_choose(network, encoder, prompt, row, start))
        else:
            marked.append(_write(network, encoder, exam, prompt, row, start))
    right = [float(mark["right"]) for mark in marked]
    ids = [row.get("id", number) for number, row in enumerate(rows, 1)]
    guess = [1 / len(row["choices"]) for row in rows] if exam.kind == "choice" else []
    return {
        "exam": exam.name,
        "accuracy": sum(right) / len(right),
        "interval": list(mean_interval(right)),
        "random": sum(guess) / len(guess) if guess else None,
        "rows": [{"id": i, **mark} for i, mark in zip(ids, marked, strict=True)],
        "signature": f"{exam.name}|{exam.kind}|rows:{len(rows)}|prompt:{exam.prompt!r}|headrace:1",
    }


def read_exam(path: Path) -> tuple[Exam, list[dict[str, Any]]]:
    """The exam and its rows. Raises BadInput naming what is wrong."""
    try:
        exam = Exam(**yaml.safe_load(path.read_text(encoding="utf-8")))
        lines = (path.parent / exam.rows).read_text(encoding="utf-8").split("\n")
        rows = [json.loads(line) for line in lines if line.strip()]
    except (OSError, ValueError, TypeError, yaml.YAMLError, ValidationError) as error:
        raise BadInput(f"exam {path} cannot be used: {error}") from error
    wanted = {"choice": ("choices", "answer"), "exact": ("answers",), "code": ("tests",)}[exam.kind]
    for number, row in enumerate(rows, 1):
        if lacking := [name for name in wanted if name not in row]:
            raise BadInput(f"{exam.rows}, row {number} has no {', '.join(lacking)}")
    if not rows:
        raise BadInput(f"{exam.rows} has no rows")
    return exam, rows


def run_code(code: str, tests: str) -> str | None:
    """None where `code` parses and `tests` behind it run to their end, else what went wrong."""
    try:
        ast.parse(code)
    except (SyntaxError, ValueError) as error:
        return f"does not parse: {error}"
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run(
                [sys.executable, "-I", "-c", f"{LIMITS}\n{code}\n{tests}\n"],
                cwd=folder,
                env={},
                capture_output=True,
                timeout=SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"still running after {SECONDS} s"
    last = done.stderr.decode(errors="replace").strip().rsplit("\n", 1)[-1]
    return None if done.returncode == 0 else last or f"exit status {done.returncode}"


def _choose(
    network: "Network", encoder: "Encoder", prompt: str, row: dict[str, Any], start: list[int]
) -> dict[str, Any]:
    """The choice with the highest log-probability per byte, as the answer behind a space."""
    from model.generation import choice_log_probabilities

    texts = [f" {choice}" for choice in row["choices"]]
    ids = [encoder.encode(text) for text in texts]
    nats = choice_log_probabilities(network, encoder.encode(prompt), ids, start)
    scores = [x / len(text.encode()) for x, text in zip(nats, texts, strict=True)]
    best = scores.index(max(scores))
    return {"right": best == row["answer"], "answer": row["choices"][best], "reason": None}


def _write(
    network: "Network",
    encoder: "Encoder",
    exam: Exam,
    prompt: str,
    row: dict[str, Any],
    start: list[int],
) -> dict[str, Any]:
    from tasks.generation import GenerationSettings, prompt_ids, write
    from tasks.text_stream import first_stop

    settings = GenerationSettings(max_tokens=exam.max_tokens, stop=exam.stop)
    ids = prompt_ids(encoder, prompt, settings)
    tokens = [t.id for t in write(network, encoder, ids, settings, start_ids=start)]
    text = encoder.decode(tokens)
    text = text[: first_stop(text, exam.stop)]
    if exam.kind == "code":
        reason = run_code(row.get("head", "") + text, row["tests"])
        return {"right": reason is None, "answer": text, "reason": reason}
    right = text.strip() in {str(answer).strip() for answer in row["answers"]}
    return {"right": right, "answer": text, "reason": None}


def _prompt(exam: Exam, row: dict[str, Any], path: Path, number: int) -> str:
    try:
        return exam.prompt.format_map(row)
    except (KeyError, ValueError) as missing:
        raise BadInput(f"{path}: the prompt needs {missing}, which row {number} lacks") from missing
