"""Stage `exam`: a task defined in YAML, put to a model of the store, a folder or an endpoint.

    headrace exam MODEL EXAM.yaml...

What is asked is in `tasks.evaluation.exams.definition` or, as a task of lm-evaluation-harness, in
`tasks.evaluation.exams.harness`.
"""

from cluster.artifact import Artifact
from cluster.stage import stage
from cluster.store import Draft
from tasks.evaluation.exams.settings import ExamSettings


@stage(version=6)
def exam(
    settings: ExamSettings,
    draft: Draft,
    model: Artifact | None = None,
    searched: Artifact | None = None,
) -> None:
    """Put an exam to a model and grade the answers. `searched` is a `decontaminate` artifact: what
    it found of the rows splits the figures.

    Writes `rows.jsonl`: `id`, what was answered, whether it is right, the reason where it is not
    graded. Metrics: the exam's figures. Facts: `model`, `exam`, `kind`, `results` {metric:
    {`value`, 95 % `interval`, `n`, `baseline`, and `clean` and `dirty` of the rows that were not,
    and were, in the training text}}, `unscored` {reason: n}, `better` (higher or lower),
    `signature`. Raises BadInput for an unusable exam or model.
    """
    from tasks.evaluation.exams.engine import answer_exam

    answer_exam(settings, model, searched, draft)
