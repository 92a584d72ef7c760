"""Stages `translate` and `summarise`: tune an encoder-decoder, or a decoder, to write one text for
another.
"""

from cluster.artifact import Artifact
from cluster.stage import stage
from cluster.store import Draft
from tasks.tuning.text_to_text.settings import TextToTextSettings


@stage(version=3, trains=True)
def translate(model: Artifact, settings: TextToTextSettings, seed: int, draft: Draft) -> None:
    """Tune on sources and their translations; translate held-out sources by beam search.

    Writes the model folder, `metrics.jsonl` and `predictions.jsonl` (`id`, `input`, `prediction`,
    `references`). Metrics: `bleu` and `chrf` (sacreBLEU), `bleu_copy` and `chrf_copy` of the
    sources as they are, `rows`. Raises BadInput for unusable rows, and for an encoder.
    """
    from tasks.tuning.text_to_text.engine import tune
    from tasks.tuning.text_to_text.measures import translation

    tune(model, settings, seed, draft, translation)


@stage(version=3, trains=True)
def summarise(model: Artifact, settings: TextToTextSettings, seed: int, draft: Draft) -> None:
    """Tune on texts and their summaries; summarise held-out texts by beam search.

    As `translate`. Metrics: `rouge1`, `rouge2`, `rougeL` (F), the same with `_lead` of the first
    three sentences, `rows`.
    """
    from tasks.tuning.text_to_text.engine import tune
    from tasks.tuning.text_to_text.measures import summary

    tune(model, settings, seed, draft, summary)
