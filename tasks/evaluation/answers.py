"""A tuned model's answers to held-out instructions, and their overlap with the references."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pydantic import Field

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.settings import Settings
from cluster.stage import stage
from cluster.store import Draft
from tasks.data.row_files import read_row_file, write_json_lines
from tasks.inference.generation import load_model, start_ids
from tasks.tokens.chat import prompt_ids

if TYPE_CHECKING:
    from model.generation import Network
    from tasks.tokens.encoder import Encoder

METRICS = ("bleu", "chrf", "meteor", "rouge1", "rouge2", "rougeL")


class AnswerSettings(Settings):
    """How many instructions are answered, and how."""

    rows: int = Field(24, ge=1, description="held-out instructions to answer")
    max_tokens: int = Field(48, ge=1, description="tokens of an answer at most")
    samples: int = Field(3, ge=0, description="further answers drawn at random, for the report")
    sampled_rows: int = Field(4, ge=0, description="instructions that get them")
    temperature: float = Field(0.8, gt=0, description="of those random draws")


@stage(version=4)
def answers(instruct: Artifact, settings: AnswerSettings, seed: int, draft: Draft) -> None:
    """Answer the first held-out instructions greedily.

    Writes `answers.jsonl`, rows `{id, input, prediction, reference, context}`. Metrics: `answers_`
    and the name of an overlap score, over all rows (F-measure of ROUGE). Facts: the scores'
    signatures and 95 % `intervals`, `empty` answers, `shortened` prompts, `samples` for the report.
    """
    from tasks.evaluation.overlap.scores import figure, score

    asked = _asked(instruct, settings.rows)
    network, encoder = load_model(instruct.path)
    start = start_ids(instruct.path, network, encoder)
    max_tokens = min(settings.max_tokens, network.config.context // 2)
    whole = [prompt_ids(encoder, _messages(row)) for row in asked]
    prompts = [_fit(prompt, network.config.context - max_tokens) for prompt in whole]
    texts = _answer(network, encoder, prompts, max_tokens, start, draft)
    rows = [_row(row, text) for row, text in zip(asked, texts, strict=True)]
    write_json_lines(draft.path / "answers.jsonl", rows)
    scored = score(texts, [[row["reference"]] for row in rows], METRICS)
    draft.rows = len(rows)
    draft.metrics = {f"answers_{name}": figure(v) for name, v in scored["corpus"].items()}
    draft.facts = {
        "signatures": scored["signatures"],
        "intervals": scored["intervals"],
        "empty": sum(not text.strip() for text in texts),
        "shortened": sum(len(a) < len(b) for a, b in zip(prompts, whole, strict=True)),
        "samples": _samples(network, encoder, prompts, rows, max_tokens, start, settings, seed),
    }


def _asked(instruct: Artifact, count: int) -> list[dict[str, Any]]:
    lines = read_row_file(instruct.file("heldout.jsonl"))
    if not lines:
        raise BadInput(f"{instruct.name} has no held-out rows to answer; give it more rows")
    return [row for _, row in lines[:count]]


def _messages(row: dict[str, Any]) -> list[dict[str, str]]:
    return row.get("messages") or [{"role": "user", "content": row["instruction"]}]


def _fit(prompt: list[int], room: int) -> list[int]:
    """A prompt cut to `room` tokens: the instruction loses its end, the marks stay."""
    return prompt if len(prompt) <= room else [*prompt[: room - 1], prompt[-1]]


def _answer(
    network: "Network",
    encoder: "Encoder",
    prompts: list[list[int]],
    max_tokens: int,
    start: Sequence[int],
    draft: Draft,
) -> list[str]:
    from model.generation import Ending, generate

    rows = generate(
        network,
        prompts,
        Ending(max_tokens, encoder.ends),
        start_ids=start,
        progress=lambda done, of: draft.progress(done, of, "answers"),
    )
    return [encoder.decode(row.ids).strip() for row in rows]


def _row(asked: dict[str, Any], text: str) -> dict[str, Any]:
    return {
        "id": asked["id"],
        "input": asked["instruction"],
        "prediction": text,
        "reference": asked["response"],
        "context": asked.get("context"),
    }


def _samples(
    network: "Network",
    encoder: "Encoder",
    prompts: list[list[int]],
    rows: list[dict[str, Any]],
    max_tokens: int,
    start: Sequence[int],
    settings: AnswerSettings,
    seed: int,
) -> list[dict[str, Any]]:
    """The first rows with further answers drawn at random."""
    from model.generation import Ending, Sampling, generate

    if not settings.samples:
        return []
    shown = []
    for number, row in enumerate(rows[: settings.sampled_rows]):
        drawn = generate(
            network,
            [prompts[number]],
            Ending(max_tokens, encoder.ends),
            Sampling(temperature=settings.temperature),
            samples=settings.samples,
            seeds=[seed + 1000 * number + i for i in range(settings.samples)],
            start_ids=start,
        )
        sampled = [encoder.decode(row.ids).strip() for row in drawn]
        parts = ("input", "prediction", "reference")
        shown.append({**{name: row[name] for name in parts}, "sampled": sampled})
    return shown
