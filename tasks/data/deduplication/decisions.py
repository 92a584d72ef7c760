"""Which documents of a partition go, and for whom.

1. Documents are ordered: those of earlier artifacts, then by (source label, SHA-256 of the text,
   id). The first of a group of duplicates is the one that stays.
2. Exact duplicates have equal normalised texts.
3. Near duplicates, among what is left: candidates by LSH whose Jaccard similarity reaches the
   threshold, and what such pairs connect.

Memory: a piece of text, `SETS_BYTES` of shingle sets, and 250 bytes per document of the partition.
"""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tasks.data.deduplication.exact import first_equals
from tasks.data.deduplication.minhash import Family, shingle_sets
from tasks.data.deduplication.pairs import CHECKED, SKIPPED, NearPairs
from tasks.data.deduplication.partitions import Partition
from tasks.data.deduplication.sets import ShingleSets, buckets_of, compare
from tasks.data.deduplication.signatures import key_columns
from tasks.data.kernels.buffers import Offsets
from tasks.data.privacy.pii import mask

EXAMPLES = 5
SHOWN_CHARS = 200
FACTS = b"facts"
VERDICTS = pa.schema(
    [
        ("number", pa.int64()),
        ("keeper", pa.int64()),
        ("near", pa.bool_()),
        ("copy_of", pa.large_string()),  # the keeper's id
    ]
)
Example = dict[str, str | float]


@dataclass(frozen=True)
class Rule:
    """Which duplicates go. Without a `threshold` (Jaccard) near ones stay; `folder` is where
    shingle sets lie that memory has no room for.
    """

    exact: bool
    threshold: float | None
    family: Family
    folder: Path

    @property
    def signature_family(self) -> Family | None:
        """The family whose band keys are needed."""
        return self.family if self.threshold is not None else None


@dataclass
class Facts:
    """What was found; the facts of partitions add up.

    `expected_pairs` estimates how many near duplicates there are: LSH finds a pair of a similarity
    with a known probability p, so each pair that was linked stands for 1 / p.
    """

    exact_groups: int = 0
    clusters: int = 0
    largest_cluster: int = 0
    candidates: int = 0
    pairs_checked: int = 0
    pairs_linked: int = 0
    pairs_skipped: int = 0
    expected_pairs: float = 0.0
    examples: list[Example] = field(default_factory=list)

    def add(self, other: "Facts") -> None:
        """Take in the facts of another partition."""
        largest = max(self.largest_cluster, other.largest_cluster)
        examples = (self.examples + other.examples)[:EXAMPLES]
        for name, value in asdict(other).items():
            if name not in ("examples", "largest_cluster"):
                setattr(self, name, getattr(self, name) + value)
        self.largest_cluster, self.examples = largest, examples


def judge(rule: Rule, partition: Partition) -> pa.Table:
    """The documents to remove, which one stays for each, and whether it is a near duplicate.

    `Facts` are in the schema's metadata, as JSON.
    """
    about = pa.concat_tables(partition.pieces([c for c in partition.columns if c != "text"]))
    order = pc.sort_indices(about, RANKING).to_numpy().astype(np.int64)
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    keepers = np.arange(len(order))  # by rank, as all that follows
    facts = Facts()
    if rule.exact:
        twin_bytes = pc.sum(about["bytes"].filter(about["twin"])).as_py() or 0
        equals = first_equals(partition, twin_bytes, len(order))
        keepers = _best_of_equals(equals, ranks)
        facts.exact_groups = len(np.unique(keepers[keepers != np.arange(len(order))]))
    exact = keepers.copy()
    if rule.threshold is not None:
        left = np.flatnonzero(keepers == np.arange(len(order)))
        keepers[left] = left[_near(rule, partition, about, order, left, facts)]
    return _verdicts(about, order, exact, keepers, facts)


RANKING = [
    ("fixed", "descending"),
    ("source", "ascending"),
    ("content", "ascending"),
    ("id", "ascending"),
]


def _best_of_equals(equals: Offsets, ranks: Offsets) -> Offsets:
    """By rank, the lowest rank among equal texts."""
    best = np.full(len(ranks), len(ranks))
    np.minimum.at(best, equals, ranks)
    keepers = np.empty(len(ranks), np.int64)
    keepers[ranks] = best[equals]
    return keepers


def _near(
    rule: Rule, partition: Partition, about: pa.Table, order: Offsets, left: Offsets, facts: Facts
) -> Offsets:
    """For each document of `left` (ranks) the first, by its place in `left`, of its component; what
    was compared goes into `facts`.
    """
    assert rule.threshold is not None
    places = np.full(len(order), -1)
    places[order[left]] = np.arange(len(left))  # by row of the partition
    sets = ShingleSets(len(left), rule.folder)
    row = 0
    for piece in partition.pieces(["text"]):
        documents = places[row : row + piece.num_rows]
        texts = piece["text"].combine_chunks().filter(pa.array(documents >= 0))
        sets.add(documents[documents >= 0], *shingle_sets(texts))
        row += piece.num_rows
    near_pairs = NearPairs(len(left))
    worded = np.flatnonzero(sets.lengths)
    for column in key_columns(about.schema):
        keys = about[column].to_numpy()[order[left[worded]]]
        compare(near_pairs, sets, buckets_of(keys, worded), rule.threshold)
    roots = near_pairs.roots
    _count(facts, near_pairs, roots, rule.family)
    facts.examples = _examples(partition, near_pairs, order[left])
    return roots


def _count(facts: Facts, near_pairs: NearPairs, roots: Offsets, family: Family) -> None:
    sizes = np.bincount(roots) if len(roots) else np.zeros(0, np.int64)
    facts.clusters = int((sizes > 1).sum())
    facts.largest_cluster = int(sizes.max(initial=0)) if facts.clusters else 0
    facts.candidates = len(roots)
    facts.pairs_checked, facts.pairs_skipped = (
        int(near_pairs.tally[k]) for k in (CHECKED, SKIPPED)
    )
    found = np.concatenate([*near_pairs.similarities, np.zeros(0)])
    facts.pairs_linked = len(found)
    facts.expected_pairs = float((1 / family.chances(found)).sum())


def _examples(partition: Partition, near_pairs: NearPairs, rows: Offsets) -> list[Example]:
    """The first pairs linked: ids, similarity, how the texts begin."""
    pairs = np.concatenate([*near_pairs.pairs, np.zeros((0, 2), np.int64)])[:EXAMPLES]
    alike = np.concatenate([*near_pairs.similarities, np.zeros(0)])[:EXAMPLES]
    if not len(pairs):
        return []
    shown = _shown(partition, np.unique(rows[pairs]))
    return [
        {
            "a": shown[a][0],
            "b": shown[b][0],
            "jaccard": round(float(s), 4),
            "text_a": shown[a][1],
            "text_b": shown[b][1],
        }
        for (a, b), s in zip(rows[pairs].tolist(), alike, strict=True)
    ]


def _shown(partition: Partition, wanted: Offsets) -> dict[int, tuple[str, str]]:
    found: dict[int, tuple[str, str]] = {}
    row = 0
    for piece in partition.pieces(["id", "text"]):
        for place in wanted[(wanted >= row) & (wanted < row + piece.num_rows)].tolist():
            text = piece["text"][place - row].as_py()
            found[place] = (piece["id"][place - row].as_py(), mask(text[:SHOWN_CHARS]))
        row += piece.num_rows
    return found


def _verdicts(
    about: pa.Table, order: Offsets, exact: Offsets, keepers: Offsets, facts: Facts
) -> pa.Table:
    gone = keepers != np.arange(len(order))
    gone &= ~about["fixed"].to_numpy()[order]
    twins = exact != np.arange(len(order))
    # What stays for an exact duplicate may itself go, as a near one: then its own keeper stays.
    keepers = np.where(twins, keepers[exact], keepers)
    numbers = about["number"].to_numpy()[order]
    stays = keepers[gone]
    ids = about["id"].take(order[stays]).cast(pa.large_string())
    columns = [numbers[gone], numbers[stays], ~twins[gone], ids]
    metadata = {FACTS: json.dumps(asdict(facts))}
    return pa.table(columns, schema=VERDICTS.with_metadata(metadata)).sort_by("number")
