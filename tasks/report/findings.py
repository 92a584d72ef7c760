"""What a stage found, in a line: for logs, the page of its run, and Prefect's."""

from collections.abc import Mapping
from typing import Any

from cluster.manifest import Ledger, Manifest
from tasks.report.words import count, is_cost, label, number

MOST = 5
TELLING = ("bits_per", "loss", "accuracy", "error", "f1")
NO_FINDINGS = {"rows_in", "rows_out", "bytes"}  # the ledger tells of rows; the report is no figure


def findings(manifest: Manifest) -> str:
    """Its ledger, tokens, and first figures: `648 of 730 rows, less too short 82; 4.62 M tokens`.

    A stage without any of them tells of the plain facts that it noted.
    """
    said = [_kept(manifest.ledger)] if manifest.ledger else []
    said += [f"{count(manifest.tokens)} tokens"] if manifest.tokens else []
    kept = {k: v for k, v in manifest.metrics.items() if k not in NO_FINDINGS and not is_cost(k)}
    said += _figures({key: kept[key] for key in sorted(kept, key=_rank)})
    return "; ".join(said or _figures(manifest.facts))


def _kept(ledger: Ledger) -> str:
    """What is left of the rows, with the reasons that took most of the others."""
    every = sorted(((n, name) for name, n in ledger.rejects.items() if n), key=lambda one: -one[0])
    lost = [f"{name.replace('_', ' ')} {n:,}" for n, name in every[:MOST]]
    lost += [f"{sum(n for n, _ in rest):,} for other reasons"] if (rest := every[MOST:]) else []
    kept = f"{ledger.rows_out:,} of {ledger.rows_in:,} rows"
    return kept + (f", less {', '.join(lost)}" if lost else "")


def _rank(key: str) -> int:
    """The most telling figures first, the others as they were noted."""
    return next((i for i, word in enumerate(TELLING) if word in key), len(TELLING))


def _figures(values: Mapping[str, Any]) -> list[str]:
    plain = {k: v for k, v in values.items() if isinstance(v, int | float)}
    return [f"{label(key)} {number(value)}" for key, value in [*plain.items()][:MOST]]
