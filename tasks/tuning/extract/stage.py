"""Stage `extract`: fine-tune a pretrained model to find the answer to a question in a text."""

from functools import partial

from cluster.artifact import Artifact
from cluster.stage import stage
from cluster.store import Draft
from tasks.tuning.extract.settings import ExtractSettings


@stage(version=3, trains=True)
def extract(model: Artifact, settings: ExtractSettings, seed: int, draft: Draft) -> None:
    """Tune the network and a new head; measure both on rows held out.

    Writes the model folder with its head, `metrics.jsonl` and `predictions.jsonl`. Metrics:
    `exact_match` and `f1` of words, normalised as for SQuAD; `exact_match_baseline`, `f1_baseline`
    of the sentence that shares most words with the question, or of no answer where most training
    questions have none; `rows`. Raises BadInput for unusable rows.
    """
    from tasks.tuning.extract.engine import prepare
    from tasks.tuning.headed import tune

    tune(model, settings, seed, draft, partial(prepare, settings))
