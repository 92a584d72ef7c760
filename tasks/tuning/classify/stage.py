"""Stage `classify`: fine-tune a pretrained model to name the class of a text.

With the default data the classes are packages of the Python standard library and the texts are the
first lines of functions in them; no file is on both sides of the split.
"""

from functools import partial

from cluster.artifact import Artifact
from cluster.stage import stage
from cluster.store import Draft
from tasks.tuning.classify.settings import ClassifySettings


@stage(version=5, trains=True)
def classify(model: Artifact, settings: ClassifySettings, seed: int, draft: Draft) -> None:
    """Tune the network and a new head; measure both on rows held out.

    Writes the model folder with its head, `metrics.jsonl` and `predictions.jsonl`. Metrics:
    `accuracy` with its 95 % interval `accuracy_low`, `accuracy_high` (Wilson), `accuracy_majority`,
    `macro_f1`, of two classes `f1` of the rarer one, `rows`. Where rows have lists of classes:
    `accuracy` (the whole list), `micro_f1`, `macro_f1`, and the figures of the most frequent list,
    `accuracy_majority`, `micro_f1_majority`. Raises BadInput for unusable rows.
    """
    from tasks.tuning.classify.engine import prepare
    from tasks.tuning.headed import tune

    tune(model, settings, seed, draft, partial(prepare, settings))
