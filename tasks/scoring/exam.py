"""Stage `exam`: a task defined in YAML, put to a model of the store, a folder or an endpoint.

    headrace exam MODEL EXAM.yaml...

What is asked is in `tasks.scoring.exams.definition`.
"""

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from cluster.artifact import Artifact
from cluster.settings import NONE, Aside, Content, Contents, Settings
from cluster.stage import stage
from cluster.store import Draft
from tasks.data.reading.hashes import FILE, remembered_hash
from tasks.scoring.exams.definition import Exam

ROWS = "rows.jsonl"
MODEL_FILES = ("config.json", "model.safetensors", "tokenizer.json")


def _model_hashes(folder: str) -> list[str]:
    return [remembered_hash(Path(folder) / name) for name in MODEL_FILES]


class Sitting(Settings):
    """One exam put to one model: an artifact, or what `folder`, `url` or `answers` name."""

    exam: Exam
    model: str = Field(description="name of the model: an endpoint's own, else for people")
    folder: Annotated[str | None, Content(_model_hashes)] = Field(
        None, description="model folder that is no artifact"
    )
    url: str | None = Field(None, description="OpenAI-compatible endpoint")
    answers: Annotated[str | None, FILE] = Field(
        None, description="JSON lines {id, prediction}: the model's answers, given elsewhere"
    )
    concurrency: Annotated[int, Aside()] = Field(
        16, ge=1, description="requests at a time, at most"
    )
    contamination: Annotated[str | None, FILE] = Field(
        None, description="`items.jsonl` of a `decontaminate` stage elsewhere: splits the figures"
    )

    def identity(self, found: Contents = NONE) -> dict[str, Any]:
        """The exam and who sits it; a name that is only for people does not count."""
        values = super().identity(found)
        named = self.url is not None or self.answers is not None
        return values if named else {k: v for k, v in values.items() if k != "model"}


def sets_of(settings: Any, rows_hash: str) -> list[str]:
    """The names under which stage `decontaminate` looks for these rows, by the identity of its
    settings; none by another stage's.
    """
    sets = settings.get("benchmarks", ()) if isinstance(settings, dict) else ()
    return [one["name"] for one in sets if one["path"] == rows_hash]


@stage(version=1)
def exam(
    settings: Sitting,
    draft: Draft,
    model: Artifact | None = None,
    searched: Artifact | None = None,
) -> None:
    """Put an exam to a model and mark the answers. `searched` is a `decontaminate` artifact: what
    it found of the rows splits the figures.

    Writes `rows.jsonl`: `id`, what was answered, whether it is right, the reason where it is not
    marked. Metrics: the exam's figures. Facts: `model`, `exam`, `kind`, `results` {metric:
    {`value`, 95 % `interval`, `n`, `baseline`, and `clean` and `dirty` of the rows that were not,
    and were, in the training text}}, `unscored` {reason: n}, `better` (higher or lower),
    `signature`. Raises BadInput for an unusable exam or model.
    """
    from tasks.scoring.exams.sitting import sit

    sit(settings, model, searched, draft)
