"""What becomes of a batch of documents: the first filter that each fails, and the text it keeps."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tasks.data.filtering.line_removal import remove_lines
from tasks.data.filtering.measures import Measures
from tasks.data.filtering.rules import LINE_RULES, RULES

Filter = Callable[[pa.Array], list[str | None]]


def judge(
    texts: pa.Array, limits: Mapping[str, float], filters: Sequence[Filter] = ()
) -> "Verdicts":
    """Try the rules in the order of `limits`, then further filters, which see what is kept of each
    text. Line rules that follow one another act together; what comes after sees what they leave.
    """
    verdicts = Verdicts(texts.cast(pa.large_string()))
    for of_lines, rules in groupby(limits.items(), lambda item: item[0] in LINE_RULES):
        (verdicts.remove_lines if of_lines else verdicts.try_rules)(dict(rules))
    for filter in filters:
        verdicts.try_filter(filter)
    return verdicts


class Verdicts:
    """`reasons`: why each document is rejected, None for those that are kept."""

    def __init__(self, texts: pa.Array):
        self.reasons: list[str | None] = [None] * len(texts)
        self._original = self._texts = texts
        self._alive = np.ones(len(texts), np.bool_)
        self._removed = np.zeros((len(texts), len(LINE_RULES)), np.int64)

    @property
    def texts(self) -> pa.Array:
        """What is left of the texts that are kept, and the others as they were."""
        if self._texts is self._original:
            return self._original
        return pc.if_else(pa.array(self._alive), self._texts, self._original)

    @property
    def lines(self) -> Counter[str]:
        """How many lines of the texts that are kept each line rule took."""
        totals = self._removed[self._alive].sum(axis=0).tolist()
        return Counter({rule: n for rule, n in zip(LINE_RULES, totals, strict=True) if n})

    def try_rules(self, limits: Mapping[str, float]) -> None:
        """Note the first rule that each document breaks."""
        measures = Measures(self._texts, {RULES[name].measure for name in limits})
        for name, limit in limits.items():
            rule = RULES[name]
            values = measures.column(rule.measure, self._alive)
            broken = values < limit if rule.side == "min" else values > limit
            for k in np.flatnonzero(self._alive & broken):
                self.reasons[k] = name
            self._alive &= ~broken

    def remove_lines(self, limits: Mapping[str, float]) -> None:
        """Take out the lines that break a rule. White space around lines goes the first time."""
        raw = self._texts is self._original
        self._texts, removed = remove_lines(self._texts, self._alive, limits, strip=raw)
        self._removed += removed

    def try_filter(self, filter: Filter) -> None:
        """Ask a filter about the documents that are left."""
        living = np.flatnonzero(self._alive)
        for k, reason in zip(living, filter(self._texts.take(pa.array(living))), strict=True):
            self.reasons[k] = reason
            self._alive[k] = reason is None
