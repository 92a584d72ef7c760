"""Stages `preferences` and `prefer`: a model learns from what people prefer.

What the model says of every answer before it learns is an artifact of its own, the preferences in
its tokens: another `beta`, rate or loss does not compute it again.
"""

from cluster.artifact import Artifact
from cluster.stage import stage
from cluster.store import Draft
from tasks.tuning.prefer.settings import PreferenceRows, PreferSettings


@stage(version=1)
def preferences(
    model: Artifact, settings: PreferenceRows, reference: bool, single: bool, draft: Draft
) -> None:
    """Rows of preferences in the tokens of a model, by its chat template; with `reference` also the
    log-probability of each training answer by it, and of each held-out one in any case. `single`
    answers are for KTO, with as many that do not answer their prompt.

    Writes `train.safetensors`, `heldout.safetensors`, `heldout.jsonl` (`id`, `instruction`,
    `response`, `context`, `rejected`, of longer conversations `messages`) and `rejects.jsonl`.
    Facts: `training_rows`, `heldout_rows`, `answers_cut`, `supervised_example`. Raises BadInput
    where a side has no usable row.
    """
    from tasks.tuning.prefer.encode import write_preferences

    write_preferences(model.path, settings, draft, reference, single)


@stage(version=2, trains=True)
def prefer(
    model: Artifact, preferences: Artifact, settings: PreferSettings, seed: int, draft: Draft
) -> None:
    """Tune a model so that wanted answers become likelier than unwanted ones.

    Writes the model folder, `metrics.jsonl` (with the `reward_accuracy` and `reward_margin` of each
    step's batch), `heldout.jsonl` and `rewards.jsonl`. Metrics, of held-out answers:
    `reward_accuracy` (pairs whose wanted answer has the higher reward; of single answers, couples)
    with its 95 % interval (Wilson), `reward_margin`, beside the accuracy of the answers' lengths
    (`reward_accuracy_length`) and that of the likelihood by the model before
    (`reward_accuracy_before`); `rows`.
    """
    from tasks.tuning.prefer.engine import tune

    tune(model, preferences, settings, seed, draft)
