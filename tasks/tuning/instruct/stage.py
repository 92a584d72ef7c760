"""Stage `instruct`: tune a pretrained model to answer instructions.

With the default data the instructions ask what functions of the Python standard library do, and the
answers are their docstrings' first sentences. Held-out modules are not tuned on; a model pretrained
on the same library has read their source.
"""

from cluster.artifact import Artifact
from cluster.stage import stage
from cluster.store import Draft
from tasks.tuning.instruct.settings import InstructSettings


@stage(version=6, trains=True)
def instruct(
    model: Artifact,
    settings: InstructSettings,
    seed: int,
    draft: Draft,
    made: Artifact | None = None,
    sources: tuple[str, ...] = (),
) -> None:
    """Tune on prompt and answer, with loss on the answer and its end only; on the pairs of some
    `sources` of `made` text, too.

    Writes the model folder with its chat template, `metrics.jsonl`, `heldout.jsonl` (`id`,
    `instruction`, `response`, `context`, of longer conversations `messages`) and `rejects.jsonl`.
    Metrics: `answer_loss_before`, `answer_loss` (nats per held-out answer token), `answer_gain`
    (the mean over rows of their difference, with its 95 % interval), `rows`; where rows say what
    they ask about, `answer_loss_with_context` and `answer_loss_without_context` of the
    `context_rows`, and `context_gain`. Raises BadInput when no row is usable.
    """
    from tasks.tuning.instruct.engine import tune
    from tasks.tuning.sources import made_pairs

    tune(model, settings, seed, draft, made_pairs(made, sources) if made else [])
