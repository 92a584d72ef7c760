"""Instructions that say again what an earlier one said.

Candidates are found by the signatures of deduplication (MinHash), of single words; what decides is
ROUGE-L, as of Self-Instruct (Wang et al. 2023, section 2.2). Of texts whose words are distinct an
F-measure of f implies a Jaccard similarity of their words of f / (2 - f) or more: 0.54 at 0.7,
where these bands find a pair with a probability of 0.996, and one that shares a tenth with 0.006.
"""

from collections import defaultdict
from collections.abc import Sequence

import pyarrow as pa

from tasks.data.deduplication.minhash import Family, band_keys, signatures

BANDS, ROWS, SHINGLE_WORDS = 64, 4, 1


class Earlier:
    """The instructions that were kept, of which a new one may be too like."""

    def __init__(self) -> None:
        self._family = Family(BANDS, ROWS)
        self._texts: list[str] = []
        self._by_key: dict[tuple[int, int], list[int]] = defaultdict(list)

    def take(self, texts: Sequence[str], most: Sequence[float]) -> list[bool]:
        """Which of some texts are new, in turn: less alike than `most` to each kept before."""
        if not texts:
            return []
        signed, _ = signatures(pa.array(texts, pa.large_string()), self._family, SHINGLE_WORDS)
        keys = band_keys(signed, self._family).T.tolist()
        return [self._take(*one) for one in zip(texts, keys, most, strict=True)]

    def _take(self, text: str, keys: list[int], most: float) -> bool:
        named = list(enumerate(keys))
        near = {other for key in named for other in self._by_key[key]}
        if self._alike(text, sorted(near)) >= most:
            return False
        for key in named:
            self._by_key[key].append(len(self._texts))
        self._texts.append(text)
        return True

    def _alike(self, text: str, others: Sequence[int]) -> float:
        from tasks.evaluation.overlap.rouge import rouge

        references = [[self._texts[other]] for other in others]
        scored = rouge([text] * len(others), references, ["rougeL"])
        return max((one["rougeL"]["fmeasure"] for one in scored), default=0.0)
