"""Agreement of scores with people: Pearson, Spearman and Kendall, overall and by group.

headrace agree SCORES.jsonl --human FIELD --json
"""

import math
from collections.abc import Hashable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cluster.errors import BadInput
from tasks.data.json_files import read_json_lines
from tasks.evaluation.statistics import audits
from tasks.evaluation.statistics.calibration import How, calibrate
from tasks.evaluation.statistics.intervals import (
    CORRELATIONS,
    correlation,
    known,
    members,
    statistic_interval,
)
from tasks.evaluation.statistics.reliability import Level, krippendorff

RESAMPLES = 500


def agree_file(
    path: Path,
    human: str,
    score: str = "score",
    group: str | None = None,
    calibration: How | None = None,
    text: str | None = None,
    own: str | None = None,
    raters: Sequence[str] = (),
) -> dict[str, Any]:
    """`agree` for a JSON-lines file; rows without a score (null: unscored) are counted, not used.

    `calibration` fits the scores to the ratings; `text`, a field with the answer, audits the score
    for its length; `own`, a field that is true for answers of the judge's family, for preferring
    them; `raters`, fields with the numbers of several judges, or one with a list of a judge's
    repeats, give Krippendorff's alpha between them, by interval and by rank.
    Raises BadInput naming the line, or when fewer than three rows have both numbers.
    """
    pairs, groups, used, unscored = [], [], [], 0
    for number, row in read_json_lines(path):
        scored, judged = _number(path, number, row, score), _number(path, number, row, human)
        if scored is None or judged is None:
            unscored += 1
            continue
        if group is not None and not isinstance(row.get(group), str | int):
            raise BadInput(f"{path}, line {number} has no '{group}' to group by")
        pairs.append((scored, judged))
        groups.append(row.get(group) if group else None)
        used.append(row)
    if len(pairs) < 3:
        raise BadInput(
            f"{path} has {len(pairs)} rows with numbers in '{score}' and '{human}'; "
            "three are needed"
        )
    scores, humans = zip(*pairs, strict=True)
    result = agree(scores, humans, groups if group else None)
    result["unscored"] = unscored
    if calibration:
        result["calibration"] = calibrate(scores, humans, calibration)
    if text:
        lengths = [float(len(str(row.get(text, "")))) for row in used]
        result["length"] = audits.length_audit(scores, lengths, humans)
    if own:
        family = [bool(row.get(own)) for row in used]
        result["family"] = audits.family_audit(scores, family, humans)
    if raters:
        result["alpha"] = _alphas(path, raters)
    return result


def _alphas(path: Path, raters: Sequence[str]) -> dict[str, Any]:
    """Alpha over all rows of the file, those without a human rating too."""
    ratings = []
    for number, row in read_json_lines(path):
        if len(raters) == 1 and isinstance(row.get(raters[0]), list | None):
            listed = dict(enumerate(row.get(raters[0]) or []))
            ratings.append([_number(path, number, listed, i) for i in listed])
        else:
            ratings.append([_number(path, number, row, field) for field in raters])
    levels: tuple[Level, ...] = ("interval", "ordinal")
    return {level: krippendorff(ratings, level) for level in levels}


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
    for name in CORRELATIONS:
        result[name] = known(correlation(name, data))
        low, high = statistic_interval(partial(correlation, name), data, groups, count=resamples)
        result["interval"][name] = [known(low), known(high)]
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


def _number(path: Path, number: int, row: dict[Any, Any], field: Hashable) -> float | None:
    if field not in row:
        raise BadInput(f"{path}, line {number} has no field '{field}'; it has {sorted(row)}")
    value = row[field]
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise BadInput(f"{path}, line {number}: '{field}' is {value!r}, expected a finite number")
    return float(value)
