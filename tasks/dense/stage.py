"""Stage `dense`: a feed-forward network on dense features of texts, learnt by likelihood."""

from cluster.artifact import Artifact
from cluster.stage import stage
from cluster.store import Draft
from tasks.dense.settings import DenseSettings


@stage(version=1, trains=True)
def dense(vectors: Artifact, settings: DenseSettings, seed: int, draft: Draft) -> None:
    """Train a network on the mean vectors of labelled texts, and measure it on rows held out.

    Writes `network.safetensors`, `metrics.jsonl` and `predictions.jsonl`. Metrics of classes:
    `accuracy` with its 95 % interval `accuracy_low`, `accuracy_high` (Wilson), `accuracy_majority`;
    of numbers: `mse`, `mse_mean` of the training mean, `deviation`, the likeliest sigma; of both:
    `nats`, -log likelihood of a held-out row, `nats_constant` of the best constant answer, `rows`,
    `params`, and `gradient_gap`, the largest relative difference between a gradient of the whole
    network and that by finite differences. Facts: `loss`, `sizes` (of inputs and of each layer's
    outputs), `labels` (classes in order), and `steps`, the same algorithm on a tiny network, number
    by number. Raises BadInput for unusable rows.
    """
    from tasks.dense.engine import train

    draft.tracker.params({**settings.model_dump(mode="json"), "seed": seed})
    draft.tracker.datasets({"vectors": vectors})
    train(vectors, settings, seed, draft)
