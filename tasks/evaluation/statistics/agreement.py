"""Agreement of scores with people: Pearson, Spearman and Kendall, overall and by group.

headrace agree SCORES.jsonl --human FIELD --json
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cluster.errors import BadInput
from cluster.settings import nearest
from tasks.data.row_files import AS_THEY_ARE, RowLayout, read_row_file
from tasks.evaluation.statistics import audits
from tasks.evaluation.statistics.calibration import How, calibrate
from tasks.evaluation.statistics.intervals import (
    CORRELATIONS,
    bootstrap,
    correlation,
    known,
    members,
)
from tasks.evaluation.statistics.reliability import Level, krippendorff

RESAMPLES = 500
FLAGS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False, "": False}


def agree_file(
    path: Path,
    human: str,
    score: str = "score",
    group: str | None = None,
    calibration: How | None = None,
    text: str | None = None,
    own: str | None = None,
    raters: Sequence[str] = (),
    layout: RowLayout = AS_THEY_ARE,
) -> dict[str, Any]:
    """`agree` for a file of rows; rows without a score (null, or an empty cell: unscored) are
    counted, not used.

    `calibration` fits the scores to the ratings; `text`, a field with the answer, audits the score
    for its length; `own`, a field that is true for answers of the judge's family, for preferring
    them; `raters`, fields with the numbers of several judges, or one with a list of a judge's
    repeats, give Krippendorff's alpha between them, by interval and by rank. `layout` is that of
    `read_row_file`.
    Raises BadInput naming the line, or when fewer than three rows have both numbers.
    """
    rows = [_Row(f"{path}, line {n}", fields) for n, fields in read_row_file(path, layout)]
    pairs = [(row.number(score), row.number(human)) for row in rows]
    rated = [(row, s, h) for row, (s, h) in zip(rows, pairs, strict=True) if None not in (s, h)]
    if len(rated) < 3:
        raise BadInput(
            f"{path} has {len(rated)} rows with numbers in '{score}' and '{human}'; "
            "three are needed"
        )
    used, scores, humans = zip(*rated, strict=True)
    groups = [row.name(group) for row in used] if group else None
    lengths = [float(len(str(row.value(text)))) for row in used] if text else []
    family = [row.flag(own) for row in used] if own else []
    # Of all rows, those without a human rating too.
    ratings = [row.ratings(raters) for row in rows] if raters else []
    result = agree(scores, humans, groups) | {"unscored": len(rows) - len(used)}
    if calibration:
        result["calibration"] = calibrate(scores, humans, calibration)
    if lengths:
        result["length"] = audits.length_audit(scores, lengths, humans)
    if family:
        result["family"] = audits.family_audit(scores, family, humans)
    if ratings:
        levels: tuple[Level, ...] = ("interval", "ordinal")
        result["alpha"] = {level: krippendorff(ratings, level) for level in levels}
    return result


@dataclass(frozen=True)
class _Row:
    """A row and its place. Its fields may be a CSV's texts; each raises BadInput for what it is
    not, and for a field that the row does not have.
    """

    place: str
    fields: dict[str, Any]

    def value(self, field: str) -> Any:
        if field not in self.fields:
            hint = nearest(field, self.fields)
            raise BadInput(f"{self.place} has no field '{field}'; {hint}")
        return self.fields[field]

    def name(self, field: str) -> str:
        if not isinstance(value := self.value(field), str | int):
            raise BadInput(f"{self.place}: '{field}' is {value!r}, expected a name to group by")
        return str(value)

    def flag(self, field: str) -> bool:
        value = self.value(field)
        if isinstance(value, str) and value.lower() in FLAGS:
            return FLAGS[value.lower()]
        if value not in (True, False, None):
            raise BadInput(f"{self.place}: '{field}' is {value!r}, expected true or false")
        return bool(value)

    def number(self, field: str) -> float | None:
        return _number(self.place, field, self.value(field))

    def ratings(self, fields: Sequence[str]) -> list[float | None]:
        if len(fields) == 1 and isinstance(listed := self.value(fields[0]), list):
            return [_number(self.place, fields[0], value) for value in listed]
        return [self.number(field) for field in fields]


def _number(place: str, field: str, value: Any) -> float | None:
    if value is None or value == "":
        return None
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise BadInput(f"{place}: '{field}' is {value!r}, expected a finite number")
    return number


def agree(
    scores: Sequence[float],
    humans: Sequence[float],
    groups: Sequence[Hashable] | None = None,
    resamples: int = RESAMPLES,
) -> dict[str, Any]:
    """`{pearson, spearman, kendall, interval: {name: [low, high]}, n}` over all rows; a coefficient
    is None where either column is constant.

    Where both are only 0 and 1, `errors` counts `false_pass` (scored 1, people 0) and `false_fail`.
    With `groups` (documents, say), intervals resample whole groups, and `by_group` holds the mean
    of the coefficients within each group, with the numbers of `groups` used and `skipped` for a
    constant column.
    """
    data = np.array([scores, humans], dtype=np.float64).T
    result: dict[str, Any] = {"n": len(data), "interval": {}}

    def correlations(rows: np.ndarray) -> list[float]:
        return [correlation(name, data[rows]) for name in CORRELATIONS]

    found = bootstrap(correlations, len(data), groups, count=resamples)
    for number, name in enumerate(CORRELATIONS):
        result[name] = known(found.found_S[number])
        result["interval"][name] = [known(end) for end in found.interval(number)]
    if set(np.unique(data)) <= {0.0, 1.0}:
        gaps = data[:, 0] - data[:, 1]
        errors = {"false_pass": int((gaps > 0).sum()), "false_fail": int((gaps < 0).sum())}
        result["errors"] = errors
    if groups is not None:
        result["by_group"] = _by_group(data, groups)
    return result


def _by_group(data: np.ndarray, groups: Sequence[Hashable]) -> dict[str, Any]:
    grouped = members(groups)
    varied = [data[rows] for rows in grouped if np.ptp(data[rows], axis=0).all()]
    means = {
        name: known(float(np.mean([correlation(name, d) for d in varied]))) if varied else None
        for name in CORRELATIONS
    }
    return {**means, "groups": len(varied), "skipped": len(grouped) - len(varied)}
