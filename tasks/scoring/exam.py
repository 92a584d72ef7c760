"""Stage `exam`: a task defined in YAML, put to a model of the store, a folder or an endpoint.

    headrace exam MODEL EXAM.yaml...

What is asked is in `tasks.scoring.exams.definition`.
"""

from pathlib import Path
from typing import Any

from pydantic import Field

from cluster.artifact import Artifact
from cluster.settings import Settings
from cluster.stage import stage
from cluster.store import Draft
from tasks.data.reading.hashes import file_hash
from tasks.scoring.exams.definition import Exam, read_exam

ROWS = "rows.jsonl"
MODEL_FILES = ("config.json", "model.safetensors", "tokenizer.json")


class Sitting(Settings):
    """One exam put to one model: an artifact, or what `folder`, `url` or `answers` name."""

    exam: Exam
    place: str = Field(description="folder of the exam's YAML")
    model: str = Field(description="name of the model: an endpoint's own, else for people")
    folder: str | None = Field(None, description="model folder that is no artifact")
    url: str | None = Field(None, description="OpenAI-compatible endpoint")
    answers: str | None = Field(
        None, description="JSON lines {id, prediction}: the model's answers, given elsewhere"
    )
    concurrency: int = Field(16, ge=1, description="requests at a time, at most")
    contamination: str | None = Field(
        None, description="`items.jsonl` of a `decontaminate` stage elsewhere: splits the figures"
    )

    @property
    def rows_hash(self) -> str:
        """SHA-256 of the file of rows."""
        return file_hash(Path(self.place) / self.exam.rows)

    def identity(self) -> dict[str, Any]:
        """The exam and who sits it, by the content of files; where these lie does not count."""
        place, exam = Path(self.place), self.exam.model_dump(mode="json")
        exam["rows"] = self.rows_hash
        if self.exam.examples:
            exam["examples"] = file_hash(place / self.exam.examples)
        who: Any = [self.url, self.model] if self.url else None
        if self.answers:
            who = [file_hash(Path(self.answers)), self.model]
        if self.folder:
            who = [file_hash(Path(self.folder) / name) for name in MODEL_FILES]
        split = file_hash(Path(self.contamination)) if self.contamination else None
        return {"exam": exam, "model": who, "contamination": split}


def sitting(path: Path, model: str, **more: Any) -> Sitting:
    """The exam of a YAML file, for a model of this name. Raises BadInput as `read_exam` does."""
    place = str(path.resolve().parent)
    return Sitting(exam=read_exam(path), place=place, model=model, **more)


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
