"""Evaluation steps: written by a judge once for each criterion, then frozen.

They are an artifact `steps/<criterion>-<fingerprint>`, which every later run rates by: another
definition, scale or judge makes another. `headrace show` prints it, deleting it makes new ones.
"""

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from typing import Any

from cluster.artifact import Artifact
from cluster.store import Spec, Store
from tasks.scoring.judging.criteria import Criterion
from tasks.scoring.judging.verdicts import Judge

STAGE, VERSION, FILE = "steps", 1, "steps.json"
NUMBERED = re.compile(r"^\s*(?:\d+[.)]|[-*])\s+(.+)$", re.MULTILINE)
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


def evaluation_steps(judge: Judge, criterion: Criterion, scale: tuple[int, int]) -> Steps:
    """The frozen steps of this judge for this criterion, written now if there are none."""
    shipped = Steps(criterion.steps, "shipped" if criterion.steps else "none")
    if not judge.writes:
        return shipped
    identity = {"judge": judge.name, "definition": criterion.definition, "scale": list(scale)}
    store, spec = Store(), Spec(STAGE, VERSION, criterion.name, identity, {})
    with store.writer(spec):
        found = store.find(STAGE, spec.fingerprint) or _write(judge, criterion, scale, store, spec)
    if found is None:
        return shipped
    return Steps(tuple(json.loads(found.file(FILE).read_text())), "generated", found.name)


def _write(
    judge: Judge, criterion: Criterion, scale: tuple[int, int], store: Store, spec: Spec
) -> Artifact | None:
    low, high = scale
    text = judge.texts([PROMPT.format(low=low, high=high, definition=criterion.definition)])[0]
    written = NUMBERED.findall(text) if isinstance(text, str) else []
    if len(written) < 2:
        return None
    with store.draft(spec) as draft:
        draft.write_json(FILE, written)
        draft.rows = len(written)
    return Artifact.load(store.folder(spec))
