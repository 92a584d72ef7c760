"""The held-out score of a pretrained model: loss, bits per byte, and the baseline to beat."""

import logging

from cluster.artifact import Artifact
from cluster.stage import stage
from cluster.store import Draft
from tasks.evaluation.heldout.settings import HeldoutSettings
from tasks.training.facts import Ending

log = logging.getLogger("headrace.evaluate")


@stage(version=5, scores=True)
def evaluate(
    model: Artifact,
    shards: Artifact,
    settings: HeldoutSettings,
    draft: Draft,
    packing: Artifact | None = None,
) -> None:
    """Score the model's own objective on held-out text, up to a number of targets.

    Metrics: `heldout_loss` (nats a target), `heldout_accuracy`, and on the same targets
    `unigram_loss` and `unigram_accuracy` of their frequencies in training.
    Where targets are tokens, `perplexity`. A causal model predicts every token once: its
    `bits_per_byte` = nats of all tokens, ends of documents included, / (ln 2 x their UTF-8 bytes),
    and `bits_per_byte_witten_bell` is, on the same bytes, that of a byte model of the text this
    model has seen. Other objectives predict some tokens given what they show of the text, which is
    no code for it: `bits_per_predicted_byte` compares models of the same objective only.
    Objectives with two kinds of targets have the others' figures too: `pairs_loss`,
    `pairs_accuracy`, `pairs_unigram_loss`, `pairs_unigram_accuracy` (next_sentence,
    sentence_order), `tokens_...` (of the generator of replaced_token_detection).
    Facts: 95 % `intervals` of `heldout_loss` and of the bits, over batches of text; of a recurrent
    decoder how far back its gradients reach, `through_time` (see `gradient_norms`).
    """
    from tasks.evaluation.heldout import loss as heldout
    from tasks.evaluation.heldout.witten_bell import witten_bell_bits_per_byte

    if not (ending := Ending.of(model)).finished:  # a variant that was not trained to its end
        draft.facts = ending.noted()
        return
    device = "cuda" if draft.placement.gpus else "cpu"
    subject = heldout.load_subject(model, shards, packing)
    score = heldout.score_heldout(
        subject, settings.max_tokens, device, lambda n: draft.progress(*n, "targets")
    )
    frequencies = heldout.seen_targets(subject, settings.unigram_targets, device)
    draft.metrics = score.metrics(frequencies)
    draft.tokens = score.tokens
    draft.facts = {
        "objective": subject.settings.objective,
        "tokens": score.tokens,
        "bytes": len(score.text),
        "intervals": score.intervals(),
    }
    if subject.causal:
        seen = heldout.seen_text(model, shards, settings.baseline_bytes, packing)
        order = settings.baseline_order
        bits = witten_bell_bits_per_byte(seen, score.text, order)
        draft.metrics["bits_per_byte_witten_bell"] = bits
        draft.facts["witten_bell"] = {"order": order, "trained_on_bytes": len(seen)}
    if (found := heldout.through_time(subject, device)) is not None:
        draft.facts["through_time"] = found
    log.info(
        "held-out loss %.4f nats a target, unigram %.4f",
        draft.metrics["heldout_loss"],
        draft.metrics["unigram_loss"],
    )
