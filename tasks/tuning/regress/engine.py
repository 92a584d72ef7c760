"""The engine of stage `regress`: texts and numbers as arrays, and how near the scores come.

The head learns numbers less their mean, over their standard deviation, which `config.json` keeps as
`headrace_values`: a number is mean + deviation x logit.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np

from model.config import ModelConfig
from model.head_config import Head
from tasks.tokens.encoder import Encoder
from tasks.tuning.classify.engine import encode
from tasks.tuning.files import row_file
from tasks.tuning.headed import Outcome, Task, arrays_of, pooling_of
from tasks.tuning.regress.settings import RegressSettings
from tasks.tuning.rows import Snippet, read_snippets, sides


def prepare(settings: RegressSettings, encoder: Encoder, config: ModelConfig) -> Task:
    """The task of a file of texts with numbers. Raises BadInput for what is none, and where a side
    has no row.
    """

    def read(data: str) -> list[Snippet]:
        text, value, second = settings.text, settings.value, settings.second
        return read_snippets(row_file(data), text, value, second, written=settings)

    share = settings.heldout_share
    train, heldout, rejects = sides(settings.data, settings.heldout, share, read)
    length = min(settings.length, config.context)
    rows, cut = encode(encoder, config, train, length)
    values = _values(train)
    mean, deviation = float(values.mean()), float(values.std()) or 1.0
    labels = ((values - mean) / deviation).astype(np.float32)[:, None]
    return Task(
        head=Head(
            "sequence", 1, pooling_of(settings.pooling, config), "regression", settings.read_layers
        ),
        train=arrays_of(rows, config, encoder.pad) | {"labels": labels},
        heldout=arrays_of(encode(encoder, config, heldout, length)[0], config, encoder.pad),
        measure=partial(_measure, heldout, mean, deviation),
        used=len(train) + len(heldout),
        rejects=rejects,
        names=[settings.value],
        config={"headrace_values": {"mean": mean, "deviation": deviation}},
        facts={"texts_cut": cut},
    )


def _values(rows: Sequence[Snippet]) -> np.ndarray:
    """The number of each row, [rows]."""
    return np.array([row.number() for row in rows])


def _measure(
    rows: Sequence[Snippet], mean: float, deviation: float, scores: Sequence[np.ndarray]
) -> Outcome:
    """How near the scores, on the scale of the numbers again, come to held-out rows' own."""
    gold, predicted = _values(rows), mean + deviation * np.concatenate(scores).astype(float)
    found = {
        "pearson": _correlation("pearsonr", gold, predicted),
        "spearman": _correlation("spearmanr", gold, predicted),
        "rmse": float(np.sqrt(np.mean((gold - predicted) ** 2))),
        "rmse_mean": float(np.sqrt(np.mean((gold - mean) ** 2))),
        "rows": float(len(rows)),
    }
    records = [
        row.record() | {"label": value, "prediction": guess}
        for row, value, guess in zip(rows, gold.tolist(), predicted.tolist(), strict=True)
    ]
    return Outcome(found, records)


def _correlation(kind: str, gold: np.ndarray, predicted: np.ndarray) -> float:
    """0 where one of both is constant."""
    from scipy import stats

    if len(gold) < 2 or np.ptp(gold) == 0 or np.ptp(predicted) == 0:
        return 0.0
    return float(getattr(stats, kind)(gold, predicted).statistic)
