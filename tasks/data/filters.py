"""Stage `filter`: documents that break a rule are set aside, with the rule's name as the reason."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Literal

from pydantic import Field, field_validator

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.settings import Settings, nearest
from cluster.stage import stage
from cluster.store import Draft
from tasks.data.filtering.rules import PRESETS, RULES, reason_against

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from tasks.data.ledger import Sorter

ERROR = "error:"


class FilterSettings(Settings):
    """A preset of rules, and changes to it."""

    preset: Literal["basic", "code", "web"] = "basic"
    limits: dict[str, float | None] = Field(
        {}, description="limits by rule: changes one of the preset, adds a rule, null drops one"
    )
    max_bad_rate: float = Field(
        0.01, ge=0, le=1, description="largest share of documents a rule may fail on with an error"
    )

    @field_validator("limits")
    @classmethod
    def _known(cls, limits: dict[str, float | None]) -> dict[str, float | None]:
        for name in limits:
            if name not in RULES:
                raise ValueError(f"unknown rule '{name}': {nearest(name, RULES)}")
        return limits

    @property
    def rules(self) -> dict[str, float]:
        """The limits in force, by rule, in the order they are tried."""
        merged = PRESETS[self.preset] | self.limits
        return {name: limit for name, limit in merged.items() if limit is not None}


@stage(version=1, name="filter")
def filter_text(raw: Artifact, settings: FilterSettings, draft: Draft) -> None:
    """Keep the documents that keep every rule.

    Raises BadInput when none is left, or rules raise on more than `max_bad_rate` of them.
    """
    from tasks.data.blocks import map_text

    limits = settings.rules
    account = map_text(raw, draft, partial(_filter_block, limits))
    counts = ", ".join(f"{reason} {n}" for reason, n in account.reasons.most_common())
    failed = sum(n for reason, n in account.reasons.items() if reason.startswith(ERROR))
    if failed > settings.max_bad_rate * account.rows_in:
        raise BadInput(
            f"filter rules raised on {failed} of {account.rows_in} documents, more than "
            f"max_bad_rate {settings.max_bad_rate:g} allows: {counts}"
        )
    if not account.rows_out:
        raise BadInput(
            f"0 of {account.rows_in} rows left after filter '{settings.preset}': {counts}. "
            "Choose another preset or change `filters.limits`"
        )
    draft.facts["limits"] = limits


def _filter_block(
    limits: Mapping[str, float], batches: "Iterator[RecordBatch]", rows: "Sorter"
) -> None:
    for batch in batches:
        rows.split(batch, [verdict(t, limits) for t in batch.column("text").to_pylist()])


def verdict(text: str, limits: Mapping[str, float]) -> str | None:
    """The reason to reject a text, or None; a rule that raises is a reason too."""
    try:
        return reason_against(text, limits)
    except Exception as error:
        return f"{ERROR}{type(error).__name__}"
