"""Stage `infer`: a model's answers to the rows of a file, every row accounted for.

headrace infer MODEL rows.jsonl --to out.jsonl
infer: {data: rows.jsonl}                          # in a recipe: by the finished model
"""

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.stage import Outcome, stage
from cluster.store import Draft
from tasks.adoption.stage import AdoptSettings
from tasks.serving.batch.settings import InferSettings


def check_answered(found: Outcome, settings: InferSettings) -> None:
    """Raise BadInput when more rows than allowed, or all, have no answer."""
    assert found.ledger is not None
    failed, total = sum(found.ledger.rejects.values()), found.ledger.rows_in
    if failed > settings.max_failed * total or failed == total:
        why = ", ".join(f"{reason} {n}" for reason, n in found.ledger.rejects.items())
        raise BadInput(
            f"{failed} of {total} rows of {settings.data} have no answer ({why}); mend them, name "
            f"another field, or allow more: max_failed is {settings.max_failed:g}"
        )


@stage(version=1, gate=check_answered)
def infer(
    settings: InferSettings,
    seed: int,
    draft: Draft,
    model: Artifact | None = None,
    origin: AdoptSettings | None = None,
) -> None:
    """Answer the rows by a model, an artifact or what `origin` names; row n draws by `seed` + n.

    Writes `answers.jsonl`, in the order of the rows: each with its own fields, `id` (its own, or
    the number of its line), `prediction`, `ended` (stop or length) and `tokens`; and
    `rejects.jsonl`, `{line, reason, detail, row}`. The ledger counts both. Facts: `asked` in this
    attempt, `reused` from earlier ones, `ended`. Raises BadInput for a model that is no decoder,
    for a file without rows, and where more rows than allowed, or all, have no answer.
    """
    from tasks.serving.batch.writing import answer_file

    answer_file(settings, model, origin, seed, draft)
