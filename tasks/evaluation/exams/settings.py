"""Settings of stage `exam`: what is asked, and who answers."""

from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from cluster.settings import NONE, Aside, Content, Contents, Settings
from tasks.data.reading.hashes import FILE, remembered_hash
from tasks.evaluation.exams.definition import Exam
from tasks.evaluation.exams.harness.task import Group, Task

MODEL_FILES = ("config.json", "tokenizer.json")
"""What a whole model's folder has beside its weights."""


def _model_hashes(folder: str) -> list[str]:
    from model.hub import weight_files

    about, tokenizer = (Path(folder) / name for name in MODEL_FILES)
    return [remembered_hash(path) for path in (about, *weight_files(Path(folder)), tokenizer)]


class ExamSettings(Settings):
    """One exam put to one model: an artifact, or what `folder`, `url` or `answers` name."""

    exam: Exam | Task | Group
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


ROWS = "rows.jsonl"


def sets_of(settings: Any, rows: Collection[str]) -> list[str]:
    """The names under which stage `decontaminate` looks for files of rows, by their hashes and the
    identity of its settings; none by another stage's.
    """
    sets = settings.get("benchmarks", ()) if isinstance(settings, dict) else ()
    return [one["name"] for one in sets if one["path"] in rows]
