"""Stage `grade`: a model grades some documents from 0 to 5, by which `filters.quality` learns.

    grade: {model: my-model, documents: 500}
    filters: {preset: web, quality: {}}          # keeps what its classifier finds good

After FineWeb-Edu (Penedo et al. 2024, section 4): a large model grades few documents, and a cheap
classifier learns from these and goes over all of them.
"""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from cluster.artifact import Artifact
from cluster.stage import stage
from cluster.store import Draft
from tasks.evaluation.judging.questions import Unscored, moments
from tasks.synthesis.kinds import Made, Outcome, Refused
from tasks.synthesis.passages import Ask, number_of
from tasks.synthesis.settings import GradeSettings
from tasks.synthesis.stage import check_made, finish, writer_plan
from tasks.synthesis.templates import grading
from tasks.synthesis.writers import Writer

GRADE_TOKENS = 16


@stage(version=1, gate=check_made)
def grade(
    raw: Artifact,
    settings: GradeSettings,
    rules: Mapping[str, float],
    seed: int,
    draft: Draft,
    model: Artifact | None = None,
) -> None:
    """Grade documents that the `rules` of the filters keep; personal data in them is masked before
    they are sent.

    Rows are the documents, their `label` 1 for a `good` grade and 0 for others;
    `provenance.parquet` has the mean grade as `score`. Facts are those of `synthesize`, and
    `scores`, how many documents have which grade. Raises BadInput as `synthesize` does.
    """
    from tasks.synthesis.engine import carry_out

    plan = writer_plan(settings, draft, model, (0.0, 1.0, GRADE_TOKENS))
    asked = [
        Ask(id, "grade", "", id, license, text, seed)
        for _, id, text, license in heapq.nsmallest(settings.documents, _ranked(raw, rules, seed))
    ]
    carry_out(draft, asked, partial(graded, settings=settings), plan, settings)
    finish(draft, settings)


def graded(asked: Sequence[Ask], writer: Writer, settings: GradeSettings) -> list[Outcome]:
    """The grade of each document."""
    from tasks.data.privacy.pii import mask

    shown = [mask(ask.passage[: settings.characters]) for ask in asked]
    questions = [grading(text, settings.rubric) for text in shown]
    found: list[Outcome] = []
    for ask, verdict in zip(asked, writer.judge.distributions(questions), strict=True):
        if isinstance(verdict, Unscored):
            found.append(Refused(verdict.reason, verdict.detail))
            continue
        label = str(int(int(verdict.likeliest) >= settings.good))
        mean, _ = moments(verdict.probabilities)
        found.append(Made(ask.passage, label=label, score=mean))
    return found


def _ranked(
    raw: Artifact, rules: Mapping[str, float], seed: int
) -> Iterator[tuple[int, str, str, str | None]]:
    """Rank, id, text and licence of every document that the rules keep."""
    from tasks.data.filtering.decisions import judge
    from tasks.data.text import read_batches

    for batch in read_batches(raw, ["id", "text", "license"]):
        verdicts = judge(batch["text"], dict(rules), [])
        rows = zip(
            batch["id"].to_pylist(),
            verdicts.texts.to_pylist(),
            batch["license"].to_pylist(),
            verdicts.reasons,
            strict=True,
        )
        for id, text, license, reason in rows:
            if reason is None:
                yield number_of(seed, id), id, text, license
