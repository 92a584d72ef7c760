"""What two texts of word codes have in common: n-grams, skip-bigrams, longest subsequences.

Every kernel takes the codes of all texts with the offsets of each, and pairs (prediction,
reference) of text numbers; it fills `out`, float64 [pairs, 3]: matched, predicted, referred.
"""

import numpy as np
import numpy.typing as npt

from tasks.data.kernels import kernel

Codes = npt.NDArray[np.int64]
Marks = npt.NDArray[np.bool_]
Hits = npt.NDArray[np.float64]


@kernel
def ngram_hits(keys: Codes, starts: Codes, ends: Codes, pairs: Codes, out: Hits) -> None:
    """N-grams, given as sorted keys text by text."""
    for p in range(len(pairs)):
        a, b = pairs[p]
        out[p, 0] = _common(keys[starts[a] : ends[a]], keys[starts[b] : ends[b]])
        out[p, 1] = ends[a] - starts[a]
        out[p, 2] = ends[b] - starts[b]


@kernel
def sort_texts(keys: Codes, starts: Codes, ends: Codes) -> None:
    """Sort the keys of each text, in place."""
    for i in range(len(starts)):
        keys[starts[i] : ends[i]].sort()


@kernel
def skip_hits(
    codes: Codes, texts: Codes, pairs: Codes, size: int, reach: int, unigrams: bool, out: Hits
) -> None:
    """Pairs of words with up to `reach` - 1 words between them (any number for 0), and, if asked
    for, single words. `size` bounds the codes.
    """
    for p in range(len(pairs)):
        a, b = pairs[p]
        left = _skip_bigrams(codes[texts[a] : texts[a + 1]], size, reach, unigrams)
        right = _skip_bigrams(codes[texts[b] : texts[b + 1]], size, reach, unigrams)
        out[p, 0] = _common(left, right)
        out[p, 1], out[p, 2] = len(left), len(right)


@kernel
def lcs_hits(codes: Codes, texts: Codes, pairs: Codes, out: Hits) -> None:
    """The longest common subsequence."""
    for p in range(len(pairs)):
        a, b = pairs[p]
        x, y = codes[texts[a] : texts[a + 1]], codes[texts[b] : texts[b + 1]]
        row = np.zeros(len(y) + 1, np.int32)
        for token in x:
            diagonal = np.int32(0)
            for j in range(len(y)):
                above = row[j + 1]
                row[j + 1] = diagonal + 1 if y[j] == token else max(above, row[j])
                diagonal = above
        out[p, 0], out[p, 1], out[p, 2] = row[-1], len(x), len(y)


@kernel
def weighted_hits(codes: Codes, texts: Codes, pairs: Codes, power: float, out: Hits) -> None:
    """The common subsequence in which a run of k words counts k^power."""
    for p in range(len(pairs)):
        a, b = pairs[p]
        x, y = codes[texts[a] : texts[a + 1]], codes[texts[b] : texts[b + 1]]
        best, run = np.zeros(len(y) + 1), np.zeros(len(y) + 1, np.int64)
        for token in x:
            before, before_run = 0.0, 0
            for j in range(len(y)):
                above, above_run = best[j + 1], run[j + 1]
                if y[j] == token:
                    best[j + 1] = before + (before_run + 1.0) ** power - before_run**power
                    run[j + 1] = before_run + 1
                else:
                    best[j + 1], run[j + 1] = max(above, best[j]), 0
                before, before_run = above, above_run
        out[p, 0], out[p, 1], out[p, 2] = best[-1], len(x) ** power, len(y) ** power


@kernel
def union_lcs_hits(
    codes: Codes, texts: Codes, sentences: Codes, lines: Codes, pairs: Codes, size: int, out: Hits
) -> None:
    """Per reference sentence the union of its LCS with every predicted sentence; no word is matched
    more often than it occurs on either side.
    """
    free_x, free_y = np.zeros(size, np.int32), np.zeros(size, np.int32)
    for p in range(len(pairs)):
        a, b = pairs[p]
        x, y = codes[texts[a] : texts[a + 1]], codes[texts[b] : texts[b + 1]]
        for token in x:
            free_x[token] += 1
        for token in y:
            free_y[token] += 1
        matched = 0
        for r in range(lines[b], lines[b + 1]):
            wanted = codes[sentences[r] : sentences[r + 1]]
            hit = np.zeros(len(wanted), np.bool_)
            for s in range(lines[a], lines[a + 1]):
                _mark_lcs(wanted, codes[sentences[s] : sentences[s + 1]], hit)
            for i in range(len(wanted)):
                token = wanted[i]
                if hit[i] and free_x[token] > 0 and free_y[token] > 0:
                    free_x[token] -= 1
                    free_y[token] -= 1
                    matched += 1
        out[p, 0], out[p, 1], out[p, 2] = matched, len(x), len(y)
        free_x[x] = 0
        free_y[y] = 0


@kernel
def _mark_lcs(x: Codes, y: Codes, hit: Marks) -> None:
    """Mark the places in `x` of one longest common subsequence with `y`; of equals, that which the
    reference implementations read out.
    """
    length = np.zeros((len(x) + 1, len(y) + 1), np.int32)
    for i in range(len(x)):
        for j in range(len(y)):
            if x[i] == y[j]:
                length[i + 1, j + 1] = length[i, j] + 1
            else:
                length[i + 1, j + 1] = max(length[i, j + 1], length[i + 1, j])
    i, j = len(x), len(y)
    while i > 0 and j > 0:
        if x[i - 1] == y[j - 1]:
            i -= 1
            j -= 1
            hit[i] = True
        elif length[i, j - 1] > length[i - 1, j]:
            j -= 1
        else:
            i -= 1


@kernel
def _skip_bigrams(tokens: Codes, size: int, reach: int, unigrams: bool) -> Codes:
    """Sorted keys of the skip-bigrams of one text."""
    most = len(tokens) - 1 if reach == 0 else min(reach, len(tokens) - 1)
    count = len(tokens) if unigrams else 0
    for distance in range(1, most + 1):
        count += len(tokens) - distance
    keys, n = np.empty(count, np.int64), 0
    for distance in range(1, most + 1):
        for i in range(len(tokens) - distance):
            keys[n] = tokens[i] * size + tokens[i + distance]
            n += 1
    if unigrams:
        keys[n:] = size * size + tokens
    keys.sort()
    return keys


@kernel
def _common(left: Codes, right: Codes) -> int:
    """How many keys two sorted arrays share, each as often as it is in both."""
    i, j, shared = 0, 0, 0
    while i < len(left) and j < len(right):
        if left[i] == right[j]:
            shared += 1
            i += 1
            j += 1
        elif left[i] < right[j]:
            i += 1
        else:
            j += 1
    return shared
