"""Near duplicates: MinHash signatures, locality-sensitive hashing, and a check of the true Jaccard
similarity of every candidate pair.

1. A text is the set of its shingles: hashes of 5 consecutive words, in lower case and without
   punctuation.
2. MinHash (Broder 1997): per text the minimum of each of bands x rows permutations of its set.
3. LSH: texts equal in all rows of a band are candidates. With 14 bands of 8 rows a pair of
   similarity s is one with probability 1 - (1 - s^8)^14: 0.92 at 0.8, 0.56 at 0.7, 0.05 at 0.5.
4. A candidate pair is linked when the Jaccard similarity of its sets reaches the threshold.
5. Of each connected component the longest text stays; of equally long ones that with the smallest
   SHA-256. The kept texts so do not depend on the order of the input.

Memory: 4 bytes x bands x rows per text, and 8 bytes per word of the texts that are candidates.
"""

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
import numpy.typing as npt

Texts = Callable[[], Iterable[str]]
Hashes = npt.NDArray[np.uint64]
WORD = re.compile(r"\w+")
ASCII_WORDS = bytes(c if WORD.match(chr(c)) else ord(" ") for c in range(256))
# Written without spaces: each character is a word.
WIDE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
WIDE_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W\u3040-\u30ff\u3400-\u9fff]+")
KNOWN_WORDS = 1 << 20
BATCH_SHINGLES = 1 << 16
# In a bucket of at most so many texts all pairs are checked; a larger one would be quadratic.
SMALL_BUCKET = 64
LEADERS = 16
EXAMPLES = 5


@dataclass(frozen=True)
class LshSettings:
    """How near duplicates are found; see the module's numbered steps."""

    threshold: float = 0.8
    bands: int = 14
    rows: int = 8
    shingle_words: int = 5


@dataclass
class Clusters:
    """For each text the one it gives way to (or itself), and what was done to find out.

    `pairs_skipped` are candidates of oversized buckets that were left unchecked.
    """

    keepers: list[int]
    clusters: int = 0
    largest: int = 0
    candidates: int = 0
    pairs_checked: int = 0
    pairs_linked: int = 0
    pairs_skipped: int = 0
    examples: list[tuple[int, int, float]] = field(default_factory=list)


def near_duplicates(texts: Texts, settings: LshSettings, skip: Collection[int] = ()) -> Clusters:
    """Clusters of near duplicates among the texts whose number is not in `skip`.

    `texts` is called twice and yields the same texts in the same order.
    """
    signer = _Signer(settings)
    ranks: list[tuple[int, bytes]] = []
    for number, text in enumerate(texts()):
        ranks.append((-len(text), hashlib.sha256(text.encode()).digest()))
        if number not in skip:
            signer.add(number, shingles(text, settings.shingle_words))
    buckets = _buckets(*signer.result(), settings)
    for bucket in buckets:
        bucket.sort(key=ranks.__getitem__)
    wanted = {number for bucket in buckets for number in bucket}
    sets = {n: shingles(t, settings.shingle_words) for n, t in enumerate(texts()) if n in wanted}
    links = _Links(ranks, sets, settings.threshold)
    for bucket in buckets:
        links.check(bucket)
    return links.clusters()


def shingles(text: str, words_each: int) -> Hashes:
    """The distinct 64-bit hashes of every `words_each` consecutive words, sorted; of all words
    together where there are fewer; none for a text without words.
    """
    words = _words(text.lower())
    if len(_word_hashes) > KNOWN_WORDS:
        _word_hashes.clear()
    hashes = np.fromiter(map(_word_hashes.__getitem__, words), np.uint64, len(words))
    words_each = min(words_each, len(words))
    total = np.zeros(len(words) - words_each + 1 if words else 0, np.uint64)
    for j in range(words_each):
        total = total * MULTIPLIER + hashes[j : j + len(total)]
    return np.unique(_mix(total))


def jaccard(a: Hashes, b: Hashes) -> float:
    """Shared elements of two sorted sets, of all their elements."""
    small, large = sorted((a, b), key=len)
    if not len(small):
        return 0.0
    places = np.minimum(np.searchsorted(large, small), len(large) - 1)
    shared = int((large[places] == small).sum())
    return shared / (len(a) + len(b) - shared)


def _words(text: str) -> Sequence[str | bytes]:
    """Runs of letters, digits and underscores; as bytes where all is ASCII, which is faster."""
    if text.isascii():
        return text.encode().translate(ASCII_WORDS).split()
    return (WIDE_WORD if WIDE.search(text) else WORD).findall(text)


class _WordHashes(dict[str | bytes, int]):
    def __missing__(self, word: str | bytes) -> int:
        content = word if isinstance(word, bytes) else word.encode()
        value = int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")
        self[word] = value
        return value


_word_hashes = _WordHashes()
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


def _mix(values: Hashes) -> Hashes:
    """The finaliser of SplitMix64: every bit of the result depends on every bit of the value."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


class _Signer:
    """Collects sets and turns them into signatures, a cache's worth of shingles at a time."""

    def __init__(self, settings: LshSettings):
        count = settings.bands * settings.rows
        constants = hashlib.shake_128(b"headrace minhash").digest(8 * count)
        factors, self._offsets = np.frombuffer(constants, "<u4").reshape(2, count)
        self._factors = factors | np.uint32(1)
        self._numbers: list[int] = []
        self._pending: list[npt.NDArray[np.uint32]] = []
        self._size = 0
        self._done = [np.zeros((0, count), np.uint32)]

    def add(self, number: int, shingle_set: Hashes) -> None:
        if len(shingle_set):
            self._numbers.append(number)
            self._pending.append((shingle_set >> np.uint64(32)).astype(np.uint32))
            self._size += len(shingle_set)
        if self._size >= BATCH_SHINGLES:
            self._sign()

    def result(self) -> tuple[list[int], npt.NDArray[np.uint32]]:
        """Numbers of the texts that have shingles, and signatures [texts, bands x rows]."""
        if self._pending:
            self._sign()
        return self._numbers, np.concatenate(self._done)

    def _sign(self) -> None:
        """x -> factor x + offset (mod 2^32) permutes hashes that are random already."""
        values = np.concatenate(self._pending)
        starts = np.cumsum([0] + [len(s) for s in self._pending[:-1]])
        columns = [
            np.minimum.reduceat(values * factor + offset, starts)
            for factor, offset in zip(self._factors, self._offsets, strict=True)
        ]
        self._done.append(np.stack(columns, axis=1))
        self._pending, self._size = [], 0


def _buckets(
    numbers: list[int], signatures: npt.NDArray[np.uint32], settings: LshSettings
) -> list[list[int]]:
    """Per band the groups of two or more texts that agree in all its rows."""
    found = []
    for band in np.split(signatures.astype(np.uint64), settings.bands, axis=1):
        keys = np.zeros(len(band), np.uint64)
        for column in band.T:
            keys = _mix(keys * MULTIPLIER + column)
        order = np.argsort(keys, kind="stable")
        edges = np.flatnonzero(np.diff(keys[order])) + 1
        groups = np.split(order, edges)
        found += [[numbers[i] for i in group] for group in groups if len(group) > 1]
    return found


class _Links:
    """Checked pairs and the components they connect: union-find, rooted in the one that stays."""

    def __init__(self, ranks: list[tuple[int, bytes]], sets: dict[int, Hashes], threshold: float):
        self._ranks = ranks
        self._sets = sets
        self._threshold = threshold
        self._parents = list(range(len(ranks)))
        self._unlike: set[tuple[int, int]] = set()
        self._done = Clusters([], candidates=len(sets))

    def check(self, bucket: list[int]) -> None:
        """Link what is alike in a bucket sorted by rank: all pairs of a small one; in a large one
        each text with the first, then what is left with the first of those, and so on.
        """
        for _ in range(LEADERS):
            if len(bucket) <= SMALL_BUCKET:
                break
            leader, *others = bucket
            bucket = [other for other in others if not self._link(leader, other)]
        if len(bucket) <= SMALL_BUCKET:
            for a, b in combinations(bucket, 2):
                self._link(a, b)
        else:
            self._done.pairs_skipped += len(bucket) * (len(bucket) - 1) // 2

    def clusters(self) -> Clusters:
        """The outcome."""
        roots = [self._root(number) for number in range(len(self._parents))]
        sizes = np.bincount(roots) if roots else np.zeros(0, np.int64)
        self._done.keepers = roots
        self._done.clusters = int((sizes > 1).sum())
        self._done.largest = int(sizes.max(initial=0))
        return self._done

    def _link(self, a: int, b: int) -> bool:
        """Whether two texts are in one component, after looking at them if that is not known."""
        root_a, root_b = self._root(a), self._root(b)
        if root_a == root_b:
            return True
        if (a, b) in self._unlike:
            return False
        self._done.pairs_checked += 1
        similarity = self._similarity(a, b)
        if similarity < self._threshold:
            self._unlike.add((a, b))
            return False
        keeper, other = sorted((root_a, root_b), key=self._ranks.__getitem__)
        self._parents[other] = keeper
        self._done.pairs_linked += 1
        if len(self._done.examples) < EXAMPLES:
            self._done.examples.append((a, b, round(similarity, 4)))
        return True

    def _similarity(self, a: int, b: int) -> float:
        """The Jaccard similarity, or 0 where the sizes alone put it below the threshold."""
        set_a, set_b = self._sets[a], self._sets[b]
        if min(len(set_a), len(set_b)) < self._threshold * max(len(set_a), len(set_b)):
            return 0.0
        return jaccard(set_a, set_b)

    def _root(self, number: int) -> int:
        parents = self._parents
        while parents[number] != number:
            parents[number] = parents[parents[number]]
            number = parents[number]
        return number
