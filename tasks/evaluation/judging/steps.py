"""Evaluation steps: written by a judge once for each criterion, then frozen.

They are an artifact of stage `steps`, which every later run rates by: another definition, scale or
judge makes another. `headrace show` prints it, deleting it makes new ones.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import Field

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.settings import Settings
from cluster.stage import specify, stage
from cluster.store import Draft, Store
from tasks.evaluation.judging.criteria import Criterion
from tasks.evaluation.judging.free_text import items_in
from tasks.evaluation.judging.questions import NO_REPLY, Judge, Unscored

FILE = "steps.json"
PROMPT = """\
You will be given answers to rate by one criterion on a scale from {low} to {high}.

Criterion: {definition}

Write 3 or 4 short numbered steps that lead from reading an answer to its rating. Only the steps."""


@dataclass(frozen=True)
class Steps:
    """Steps to rate by and where they are from.

    `generated`: by the judge, kept in `artifact`; `shipped`: the criterion's own, where the judge
    cannot write or writes nothing usable; `file`: the user's; `none`.
    """

    steps: tuple[str, ...]
    source: str
    artifact: str | None = None

    def facts(self) -> dict[str, Any]:
        """What a result says of them, with their SHA-256."""
        text = json.dumps(self.steps)
        return {**asdict(self), "sha256": hashlib.sha256(text.encode()).hexdigest()}


class StepsSettings(Settings):
    """Who writes steps, and for what."""

    judge: str = Field(description="the endpoint's name of the judge")
    definition: str = Field(description="the question that answers are rated by")
    scale: tuple[int, int] = Field(description="lowest and highest rating")


@stage(version=3, name="steps")
def write_steps(settings: StepsSettings, draft: Draft) -> None:
    """Have the judge write the steps of one criterion; `steps.json` is a list of them, an empty one
    where it writes none that can be used. Raises BadInput when no reply comes.
    """
    from tasks.evaluation.judging.client import endpoint_judge

    judge = endpoint_judge(settings.judge, draft.placement.judge_url)
    text = _ask(judge, settings)
    if isinstance(text, Unscored) and text.reason in NO_REPLY:
        raise BadInput(
            f"judge '{settings.judge}' wrote no steps for '{settings.definition}': {text.reason} "
            f"{text.detail}. Mend that and run again"
        )
    _keep(_steps_in(text), draft)
    draft.facts = {"calls": judge.calls, "cost": judge.cost}


def frozen(artifacts: Iterable[Artifact], criterion: Criterion, scale: tuple[int, int]) -> Steps:
    """The steps of a criterion among artifacts of stage `steps`; without any, its own."""
    for artifact in artifacts:
        about = artifact.manifest.settings["settings"]
        same = (about["definition"], about["scale"]) == (criterion.definition, list(scale))
        if same and (steps := artifact.read_json(FILE)):
            return Steps(tuple(steps), "generated", artifact.name)
    return Steps(criterion.steps, "shipped" if criterion.steps else "none")


def evaluation_steps(
    judge: Judge, criterion: Criterion, scale: tuple[int, int], store: Store
) -> Steps:
    """The steps of this judge for this criterion that the store has, written now if it has none."""
    if not judge.writes:
        return frozen((), criterion, scale)
    settings = StepsSettings(judge=judge.name, definition=criterion.definition, scale=scale)
    spec = specify(write_steps, criterion.name, {}, {"settings": settings})
    with store.writer(spec):
        found = store.find(spec.stage, spec.fingerprint)
        if found is None and (steps := _steps_in(_ask(judge, settings))):
            with store.draft(spec) as draft:
                _keep(steps, draft)
            found = Artifact.load(store.folder(spec))
    return frozen([found] if found else (), criterion, scale)


def _ask(judge: Judge, settings: StepsSettings) -> str | Unscored:
    low, high = settings.scale
    return judge.texts([PROMPT.format(low=low, high=high, definition=settings.definition)])[0]


def _steps_in(text: str | Unscored) -> list[str]:
    written = items_in(text) if isinstance(text, str) else []
    return written if len(written) > 1 else []


def _keep(steps: list[str], draft: Draft) -> None:
    draft.write_json(FILE, steps)
    draft.rows = len(steps)
