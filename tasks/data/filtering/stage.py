"""Stage `filter`: documents that break a rule are set aside, with the rule's name as the reason.

The rules' native passes come first; on what they keep, the filters that know from files and models
(`filtering.learned`); last, filters of one's own (`filtering.custom`).
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.handover import all_here, share
from cluster.stage import Outcome, stage
from cluster.store import Draft
from tasks.data.filtering import custom
from tasks.data.filtering.rules import LINE_RULES
from tasks.data.filtering.settings import FilterSettings

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from tasks.data.ledger import Splitter

TAKEN = "line:"
SHOWN_SOURCES = 3


def check_filtered(found: Outcome, settings: FilterSettings) -> None:
    """Raise BadInput when filters failed on more documents than allowed, and more than one."""
    if found.ledger:
        _check_failed(found.ledger.rejects, found.ledger.rows_in, settings.max_failed_rate)


@stage(version=4, name="filter", gate=check_filtered)
def filter_text(
    raw: Artifact, settings: FilterSettings, draft: Draft, graded: Artifact | None = None
) -> None:
    """Keep the documents that keep every rule. `quality` learns from `graded` documents, those of
    stage `grade`, where it names no labelled rows.

    Facts: `limits` (of the rules in force, in their order), `lines_removed` (by line rule),
    `reached` (documents that took a filter of one's own too long), and where they were asked for
    `perplexity` and `quality`, what was learnt from.
    Raises BadInput when none is left, or filters fail on more than `max_failed_rate` of them and
    more than one: raise an error, or take longer than they may.
    """
    from tasks.data.blocks import map_text
    from tasks.data.filtering import learned

    functions = [custom.find(entry) for entry in settings.custom]
    for function in functions:
        with custom.Runner(function, settings.custom_seconds):
            pass  # fails here and now when it cannot be imported
    folder = draft.scratch / "learned"
    folder.mkdir(exist_ok=True)
    facts = learned.prepare(settings, folder, graded)
    share(folder)
    total = raw.manifest.rows or 0
    account = map_text(raw, draft, partial(_filter_block, settings, folder, functions, total))
    check_filtered(draft, settings)
    if not account.rows_out:
        raise BadInput(
            f"0 of {account.rows_in} rows left after filter '{settings.preset}': "
            f"{_counts(account.reasons)}. {_fields_read(raw)}Choose another preset, change "
            "`filters.limits`, or name the field that holds the text with `text:` in the source"
        )
    taken = {name: account.counts[TAKEN + name] for name in LINE_RULES}
    draft.facts["limits"] = settings.rules
    if reached := account.reasons[custom.TIMEOUT]:
        draft.facts["reached"] = {"custom_seconds": reached}
    draft.facts["lines_removed"] = {name: n for name, n in taken.items() if n}
    draft.facts |= facts


def _filter_block(
    settings: FilterSettings,
    folder: Path,
    functions: list[custom.CustomFilter],
    total: int,
    batches: "Iterator[RecordBatch]",
    rows: "Splitter",
) -> None:
    """Filter the rows of one block; `folder` has what was learned, `total` is of all blocks."""
    from tasks.data.filtering import learned
    from tasks.data.filtering.decisions import judge

    with ExitStack() as stack:
        further = learned.filters(settings, all_here(folder))
        for function in functions:
            further.append(stack.enter_context(custom.Runner(function, settings.custom_seconds)))
        for batch in batches:
            verdicts = judge(batch.column("text"), settings.rules, further)
            at = batch.schema.get_field_index("text")
            kept = batch.set_column(at, batch.schema.field(at), verdicts.texts)
            rows.split(kept, verdicts.reasons)
            rows.account.counts.update({TAKEN + rule: n for rule, n in verdicts.lines.items()})
            _check_failed(rows.account.reasons, total, settings.max_failed_rate)


def _check_failed(reasons: Mapping[str, int], total: int, max_failed_rate: float) -> None:
    """Within a block too: a filter that hangs on every document is not waited for."""
    failed = {r: n for r, n in reasons.items() if r == custom.TIMEOUT or r.startswith(custom.ERROR)}
    if (count := sum(failed.values())) > max(1.0, max_failed_rate * total):
        raise BadInput(
            f"filters failed on {count} of {total} documents, {count / total:.2%}, more than "
            f"filters.max_failed_rate {max_failed_rate:g} allows: {_counts(Counter(failed))}. Mend "
            "the filter or raise the rate"
        )


def _fields_read(raw: Artifact) -> str:
    """Which field of which source the text came from, and the fields there are."""
    read = [source for source in raw.manifest.facts.get("sources", []) if source["keys"]]
    return "".join(
        f"Text was read from '{source['text']}' of {source['label']}; the keys seen are "
        f"{', '.join(source['keys'])}. "
        for source in read[:SHOWN_SOURCES]
    )


def _counts(reasons: Counter[str]) -> str:
    return ", ".join(f"{reason} {n}" for reason, n in reasons.most_common())
