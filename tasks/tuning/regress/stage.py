"""Stage `regress`: fine-tune a pretrained model to give a text, or a pair of texts, a number."""

from functools import partial

from cluster.artifact import Artifact
from cluster.stage import stage
from cluster.store import Draft
from tasks.tuning.regress.settings import RegressSettings


@stage(version=3, trains=True)
def regress(model: Artifact, settings: RegressSettings, seed: int, draft: Draft) -> None:
    """Tune the network and a new head; measure both on rows held out.

    Writes the model folder with its head, `metrics.jsonl` and `predictions.jsonl`. Metrics:
    `pearson` and `spearman` with the numbers of held-out rows, `rmse`, `rmse_mean` (of the
    mean of the training rows, always), `rows`. Raises BadInput for unusable rows.
    """
    from tasks.tuning.headed import tune
    from tasks.tuning.regress.engine import prepare

    tune(model, settings, seed, draft, partial(prepare, settings))
