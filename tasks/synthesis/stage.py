"""Stage `synthesize`: texts that a model makes from clean text; `concatenate` puts both together.

    synthesize: {model: my-model, rephrase: {styles: [wikipedia]}, questions: {}, instructions: {}}

What is made is a source beside the others: it is deduplicated against the text that it was made
from, decontaminated and redacted like that; then pretraining or `instruct` learns from it.
"""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.stage import Outcome, stage
from cluster.store import Draft
from tasks.evaluation.judging.endpoint import JUDGE_KEY, MODEL_KEY
from tasks.synthesis.failures import BUDGET, check_failed
from tasks.synthesis.settings import AskedSettings, SynthesizeSettings

if TYPE_CHECKING:
    from tasks.synthesis.writers import WriterPlan

SHOWN_REASONS = 3


def check_made(found: Outcome, settings: AskedSettings) -> None:
    """Raise BadInput when more requests than allowed got no reply."""
    total = found.ledger.rows_in if found.ledger else 0
    check_failed(found.facts["failed"], found.facts["words"], total, settings)


@stage(version=1, gate=check_made)
def synthesize(
    text: Artifact,
    settings: SynthesizeSettings,
    seed: int,
    draft: Draft,
    model: Artifact | None = None,
) -> None:
    """Make texts from passages of the documents; `model` is the one of `from`, asked in-process.

    Rows are named by the row that they were made from, which is their `origin`, and carry its
    licence. `provenance.parquet` has of each the prompts with their hashes, the model, seed and
    sampling. Facts: `model`, `sampling`, `kinds` (of each `asked`, `made`, `pairs`), `dropped`
    pairs by reason, `failed` requests by reason, their `words`, `templates`, `used` (requests,
    tokens, USD, of all attempts), `shown` for the report.
    Raises BadInput when nothing is made, or more requests than `max_failed` get no reply.
    """
    from tasks.synthesis.engine import carry_out
    from tasks.synthesis.kinds import make
    from tasks.synthesis.passages import asks, drawn

    sampling = (settings.temperature, settings.top_p, settings.max_tokens)
    plan = writer_plan(settings, draft, model, sampling)
    asked = asks(drawn(text, settings.documents, seed), settings, seed)
    carry_out(draft, asked, partial(make, settings=settings), plan, settings)
    finish(draft, settings)


@stage(version=1)
def concatenate(text: Artifact, made: Artifact, sources: tuple[str, ...], draft: Draft) -> None:
    """The text, and behind it the made rows of some `sources`; others are for `instruct` alone."""
    from tasks.data.ledger import Splitter
    from tasks.data.text import PATTERN, read_batches

    files = text.files(PATTERN)
    for file in files:
        (draft.path / file.name).hardlink_to(file.verified())
    with Splitter(draft.path, 1 + max(_block(file.name) for file in files)) as rows:
        for batch in read_batches(made):
            wanted = [source in sources for source in batch["source"].to_pylist()]
            rows.split(batch, [None if one else "for_instruct" for one in wanted])
    rows.account.rows_out += text.manifest.rows or 0
    rows.account.close(draft)


def _block(name: str) -> int:
    """The number of a block in the name of one of its files, `text-00003-00000.parquet`."""
    return int(name.split("-")[1])


def writer_plan(
    settings: AskedSettings,
    draft: Draft,
    model: Artifact | None,
    sampling: tuple[float, float, int],
) -> "WriterPlan":
    """Where the model of some settings is asked. Raises BadInput as its writer does."""
    from tasks.synthesis.writers import Sampling, WriterPlan, account_of, writer_at

    place = draft.placement
    identity = draft.spec.settings
    kept = {k: v for k, v in identity["settings"].items() if k not in settings.budgets}
    plan = WriterPlan(
        model=model.name if model else settings.model,
        url=place.writer_url or place.judge_url,
        key=MODEL_KEY if place.writer_url else JUDGE_KEY,
        folder=model.path if model else None,
        fingerprint=model.fingerprint if model else "",
        sampling=Sampling(*sampling),
        usd=place.judge_usd,
        budgets=settings.budgets,
        work=account_of(draft.spec.stage, draft.spec.inputs, identity | {"settings": kept}),
    )
    if model is None:
        writer_at(plan)  # fails here and now for an address it must not use
    return plan


def finish(draft: Draft, settings: AskedSettings) -> None:
    """Note limits that were reached. Raises BadInput where nothing was made."""
    from tasks.data.blocks import forgetting

    assert draft.ledger is not None
    reasons: Mapping[str, int] = draft.ledger.rejects
    budget = sum(n for reason, n in reasons.items() if reason.endswith(f":{BUDGET}"))
    if budget:
        draft.facts["reached"] = dict.fromkeys(settings.budgets, budget)
    draft.metrics |= {name: float(n) for name, n in draft.facts["used"].items()}
    if not draft.ledger.rows_out:
        first = ", ".join(f"{r} {n}" for r, n in list(reasons.items())[:SHOWN_REASONS])
        said = " ".join(next(iter(draft.facts["words"].values()), "").split())
        with forgetting(draft):
            raise BadInput(
                f"nothing was made of {draft.ledger.rows_in} requests: {first or 'no documents'}. "
                f"The first said: '{said}'. Ask another model, or allow longer replies or a larger "
                "budget"
            )
