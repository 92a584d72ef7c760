"""Stage `distill`: a smaller model learns from a larger one.

A teacher that is a language model teaches to predict tokens of texts as it does; one that is a
classifier teaches its classes, of labelled texts and of others.
"""

from cluster.artifact import Artifact
from cluster.stage import stage
from cluster.store import Draft
from tasks.tuning.distill.settings import DistillSettings


@stage(version=3, trains=True)
def distill(model: Artifact, settings: DistillSettings, seed: int, draft: Draft) -> None:
    """Train a model, or one of some of its layers, on what the teacher makes of the rows.

    Writes the model folder and `metrics.jsonl` (with `soft_loss`, `hard_loss`, `hidden_loss`).
    Metrics, of held-out rows: of a language model `loss` in nats a token beside `loss_before` and
    `loss_teacher`; of a classifier `agreement` (share of rows with the teacher's class) and, of
    those with a label, `accuracy` with its 95 % interval (Wilson) beside `accuracy_teacher` and
    `accuracy_majority`; `params`, `params_teacher`, `rows`. Raises BadInput for unusable rows, and
    where teacher and student do not belong together.
    """
    from tasks.tuning.distill.engine import tune

    tune(model, settings, seed, draft)
