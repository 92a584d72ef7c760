"""Rows that are good, and may not be taken in all the same: for their licence, or as erased."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tasks.data.deduplication.minhash import Family, band_keys, signatures
from tasks.data.deduplication.normal import normalise
from tasks.data.deduplication.settings import DedupSettings
from tasks.data.reading.erasures import Erasure, Sign
from tasks.data.reading.settings import LicenseRules, SourceSettings

UNKNOWN = "unknown"
ERASED, DENIED, NOT_ALLOWED = "erased", "license_denied", "license_not_allowed"
RULES = DedupSettings()
FAMILY = Family(RULES.bands, RULES.rows)


def refusals(
    batch: pa.RecordBatch, settings: SourceSettings, erasures: Sequence[Erasure]
) -> dict[int, str]:
    """The reason against each row of a batch of text that may not be taken in, by its number."""
    found: dict[int, str] = {}
    if settings.licenses is not None:
        for row, license in enumerate(batch["license"].to_pylist()):
            if reason := _against(license, settings.licenses):
                found[row] = reason
    for erasure in erasures:
        found |= dict.fromkeys(np.flatnonzero(refused(erasure, batch["text"])).tolist(), ERASED)
    return found


def refused(erasure: Erasure, texts: pa.Array) -> np.ndarray:
    """Which of some texts an erasure took out, or are near copies of one by their signatures, [N].

    A signature tells the Jaccard similarity to within a few hundredths.
    """
    normal = normalise(texts)
    hashes = [erasure.hash(text) for text in normal.to_pylist()]
    known, spared = set(erasure.texts), set(erasure.spared)
    exact = np.array([one in known for one in hashes], bool)
    return exact | (_near(erasure, normal) & np.array([one not in spared for one in hashes], bool))


def signed(erasure: Erasure, texts: pa.Array) -> tuple[Sign, ...]:
    """The salted signatures of some texts, of those with words."""
    values, counts = signatures(normalise(texts), FAMILY)
    keys = band_keys(values, FAMILY)
    return tuple(
        Sign(
            bands=erasure.hashes("band", keys[:, row]), values=erasure.hashes("value", values[row])
        )
        for row in np.flatnonzero(counts).tolist()
    )


def _near(erasure: Erasure, normal: pa.Array) -> np.ndarray:
    values, counts = signatures(normal, FAMILY)
    keys, found = band_keys(values, FAMILY), np.zeros(len(normal), bool)
    known = {band for sign in erasure.signs for band in sign.bands}
    theirs = np.array([sign.values for sign in erasure.signs])
    for row in np.flatnonzero(counts).tolist():
        if not known.isdisjoint(erasure.hashes("band", keys[:, row])):
            own = np.array(erasure.hashes("value", values[row]))
            found[row] = (own == theirs).mean(1).max() >= RULES.threshold
    return found


def _against(license: str | None, rules: LicenseRules) -> str | None:
    """Why a licence is refused. One row may name several, all of which then hold for it."""
    names = [name.strip().lower() for name in (license or UNKNOWN).split(",")]
    if any(name in _lower(rules.deny) for name in names):
        return DENIED
    if rules.allow is not None and not all(name in _lower(rules.allow) for name in names):
        return NOT_ALLOWED
    return None


def _lower(names: Sequence[str]) -> set[str]:
    return {name.lower() for name in names}
