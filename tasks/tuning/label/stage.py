"""Stage `label`: fine-tune a pretrained model to tag every word of a sentence."""

from functools import partial

from cluster.artifact import Artifact
from cluster.stage import stage
from cluster.store import Draft
from tasks.tuning.label.settings import LabelSettings


@stage(version=4, trains=True)
def label(model: Artifact, settings: LabelSettings, seed: int, draft: Draft) -> None:
    """Tune the network and a new head; measure both on rows held out.

    Writes the model folder with its head, `metrics.jsonl` and `predictions.jsonl`. Metrics:
    `accuracy` of words, `accuracy_majority` (of each word's most frequent tag in training); where
    tags are of spans, `f1`, `precision` and `recall` of whole spans by seqeval's rules, and
    `f1_majority`; 95 % intervals of `accuracy` and `f1` over sentences; `rows`, `words`. Raises
    BadInput for unusable rows.
    """
    from tasks.tuning.headed import tune
    from tasks.tuning.label.engine import prepare

    tune(model, settings, seed, draft, partial(prepare, settings))
