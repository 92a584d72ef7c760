"""A task of lm-evaluation-harness: what its YAML says, as settings.

Source: lm-evaluation-harness 0.4.13, `TaskConfig` and `GroupConfig`. Keys have its names and mean
what they mean there; those that ask for Python code are refused where the YAML is read
(`tasks.evaluation.exams.harness.reading`).
"""

import re
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from cluster.settings import Settings, nearest
from tasks.data.reading.hashes import FILE
from tasks.evaluation.exams.harness.filters import Step, check_step
from tasks.evaluation.exams.harness.metrics import DEFAULTS, METRICS

Output = Literal["multiple_choice", "loglikelihood", "loglikelihood_rolling", "generate_until"]
Template = str | int | list[Any] | dict[str, Any]
"""A column's name or Jinja; a list or mapping of choices; a number."""
MOST_TOKENS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
"""Names of the same in `generation_kwargs`; the first that is there counts."""
MOST = 256


class DataFile(Settings):
    """A file with rows of a split."""

    split: str
    path: Annotated[str, FILE]
    format: Literal["json", "csv", "parquet", "arrow", "text"]
    options: dict[str, Any] = Field({}, description="of csv those of pandas; of json its `field`")


class Metric(Settings):
    """How answers are graded."""

    metric: str
    aggregation: str | None = None
    higher_is_better: bool | None = None
    ignore_case: bool = False
    ignore_punctuation: bool = False
    ignore_numbers: bool = False
    regexes_to_ignore: list[str] = Field([], description="cut out of answer and target")


class Filter(Settings):
    """What is taken from an answer before it is graded, step by step."""

    name: str
    filter: list[Step]

    @model_validator(mode="after")
    def _steps_are_known(self) -> "Filter":
        for step in self.filter:
            check_step(step)
        return self


class FewShot(Settings):
    """How examples are written; what is null is as for the question itself."""

    sampler: Literal["default", "first_n"] = "default"
    split: str | None = None
    samples: list[dict[str, Any]] | None = Field(None, description="rows, in place of a split")
    doc_to_text: Template | None = None
    doc_to_choice: Template | None = None
    doc_to_target: Template | None = None
    gen_prefix: str | None = None
    fewshot_delimiter: str | None = None
    target_delimiter: str | None = None


class Task(Settings):
    """One task."""

    task: str
    files: tuple[DataFile, ...]
    version: str | None = None
    output_type: Output = "generate_until"
    training_split: str | None = None
    validation_split: str | None = None
    test_split: str | None = None
    fewshot_split: str | None = None
    doc_to_text: Template = ""
    doc_to_target: Template = ""
    doc_to_choice: Template | None = None
    description: str = ""
    target_delimiter: str = " "
    fewshot_delimiter: str = "\n\n"
    fewshot_config: FewShot = FewShot()
    num_fewshot: int = Field(0, ge=0)
    gen_prefix: str | None = None
    metric_list: list[Metric] = []
    generation_kwargs: dict[str, Any] | None = None
    repeats: int = Field(1, ge=1)
    filter_list: list[Filter] = []

    @property
    def name(self) -> str:
        """What it is called; a name of ours has no other characters."""
        return re.sub(r"[^A-Za-z0-9_.-]+", "_", self.task)[:64]

    @property
    def kind(self) -> str:
        """How an answer is come by."""
        return self.output_type

    @property
    def tasks(self) -> "tuple[Task, ...]":
        """It alone; of a group all in it."""
        return (self,)

    @property
    def asked_split(self) -> str | None:
        """The split whose rows are asked."""
        return self.test_split or self.validation_split

    @property
    def asked_files(self) -> list[str]:
        """The files with its rows."""
        return [file.path for file in self.files if file.split == self.asked_split]

    @property
    def metrics(self) -> list[Metric]:
        """Those that are named, else those of the output type."""
        named = DEFAULTS[self.output_type]
        return self.metric_list or [Metric(metric=name) for name in named]

    @property
    def generation(self) -> dict[str, Any]:
        """How an answer is written, defaults filled in."""
        until = [self.fewshot_delimiter]
        if self.generation_kwargs is None:
            return {"temperature": 0.0, "do_sample": False, "max_gen_toks": MOST, "until": until}
        found: dict[str, Any] = {"until": until, **self.generation_kwargs}
        if "temperature" in found:
            found["temperature"] = float(found["temperature"])
        return found

    @property
    def max_tokens(self) -> int:
        """Tokens of a written answer at most."""
        told = self.generation
        return next((int(told[name]) for name in MOST_TOKENS if told.get(name)), MOST)

    @property
    def until(self) -> list[str]:
        """Texts before which a written answer ends."""
        found = self.generation["until"]
        return [found] if isinstance(found, str) else list(found or [])

    @model_validator(mode="after")
    def _fits_together(self) -> "Task":
        if self.asked_split is None:
            raise ValueError("neither test_split nor validation_split says which rows are asked")
        if self.output_type == "multiple_choice" and self.doc_to_choice is None:
            raise ValueError("multiple_choice needs doc_to_choice")
        kwargs = self.generation_kwargs or {}
        if kwargs.get("do_sample", float(kwargs.get("temperature") or 0) > 0):
            raise ValueError("generation_kwargs draws samples; an exam writes the likeliest tokens")
        for one in self.metrics:
            allowed = [name for name, about in METRICS.items() if self.output_type in about.outputs]
            if one.metric not in allowed:
                raise ValueError(
                    f"metric '{one.metric}' is not one of {self.output_type}; "
                    f"{nearest(one.metric, allowed)}"
                )
            aggregations = METRICS[one.metric].aggregations
            if one.aggregation is not None and one.aggregation not in aggregations:
                raise ValueError(
                    f"{one.metric} is not put together by '{one.aggregation}'; "
                    f"{nearest(one.aggregation, aggregations)}"
                )
        return self


class Aggregate(Settings):
    """A figure of a group: the mean of its tasks', by default each weighed by its rows."""

    metric: str
    filter_list: list[str] | str | None = None
    aggregation: Literal["mean"] = "mean"
    weight_by_size: bool = True


class Group(Settings):
    """Tasks, and groups of them, with figures of their own."""

    group: str
    members: "tuple[Task | Group, ...]"
    aggregates: tuple[Aggregate, ...] = ()
    version: str | None = None

    @property
    def name(self) -> str:
        """See `Task`."""
        return re.sub(r"[^A-Za-z0-9_.-]+", "_", self.group)[:64]

    @property
    def kind(self) -> str:
        """How its answers are come by."""
        return "group"

    @property
    def tasks(self) -> tuple[Task, ...]:
        """All in it, also in groups in it; each once."""
        found = {task.task: task for member in self.members for task in member.tasks}
        return tuple(found.values())

    @property
    def groups(self) -> "tuple[Group, ...]":
        """It and those in it."""
        inner = (g for member in self.members if isinstance(member, Group) for g in member.groups)
        return self, *inner

    @property
    def asked_files(self) -> list[str]:
        """See `Task`."""
        return [path for task in self.tasks for path in task.asked_files]
