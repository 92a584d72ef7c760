"""The rows of `read` artifacts that hold what is looked for, and near copies of them."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from cluster.artifact import Artifact
from tasks.data.reading.sources import root_of
from tasks.data.text import read_batches
from tasks.forgetting.asked import Asked
from tasks.forgetting.copies import Copies

HOLDS, NEAR = "holds", "near"
COLUMNS = ["id", "text", "source", "origin", "license"]


@dataclass(frozen=True)
class Row:
    """A row as `read` last took it in, in which artifact; `how` it is one: it `holds` what is
    looked for, or is a `near` copy of the row `of`, with this Jaccard similarity.
    """

    id: str
    source: str
    origin: str
    license: str | None
    artifact: str
    how: str
    similarity: float = 1.0
    of: str | None = None


@dataclass
class Found:
    """What was found: the rows, each once; by the fingerprint of every `read` artifact the ids in
    it, and the labels of their sources; by id the texts that it has had.
    """

    rows: dict[str, Row] = field(default_factory=dict)
    ids: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    labels: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    texts: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def add(self, read: Artifact, about: dict[str, Any], **how: Any) -> None:
        """Take in a row of an artifact; of those with one id the first that comes is the one."""
        known = {key: about[key] for key in ("id", "source", "origin", "license")}
        self.rows.setdefault(about["id"], Row(**known, artifact=read.name, **how))
        self.ids[read.fingerprint].add(about["id"])
        self.labels[read.fingerprint].add(about["source"])
        self.texts[about["id"]].add(about["text"])

    def told(self) -> list[dict[str, Any]]:
        """The rows as JSON has them."""
        return [asdict(row) for row in self.rows.values()]


def find_rows(asked: Asked, reads: Sequence[Artifact]) -> Found:
    """The rows of these artifacts, the newest first, that hold what is asked, and their near
    copies. Raises BadInput for a damaged artifact, and a file that is neither source nor text.
    """
    found = Found()
    for read, batch in _batches(reads):
        for row in np.flatnonzero(asked.rows(batch, _roots(read))).tolist():
            found.add(read, batch.slice(row, 1).to_pylist()[0], how=HOLDS)
    if asked.file is not None and not found.rows:
        return find_rows(asked.of_file(), reads)
    seeds = [(id, text) for id, texts in found.texts.items() for text in sorted(texts)]
    if asked.text is not None:
        seeds.append(("", asked.text))
    if seeds:
        _add_copies(found, seeds, reads)
    return found


def _add_copies(found: Found, seeds: Sequence[tuple[str, str]], reads: Sequence[Artifact]) -> None:
    copies = Copies([text for _, text in seeds])
    for read, batch in _batches(reads):
        for copy in copies.among(batch["text"]):
            about = batch.slice(copy.row, 1).to_pylist()[0]
            if about["id"] not in found.ids[read.fingerprint]:
                near = {"similarity": round(copy.similarity, 4), "of": seeds[copy.of][0] or None}
                found.add(read, about, how=NEAR, **near)


def _batches(reads: Sequence[Artifact]) -> Iterator[tuple[Artifact, pa.RecordBatch]]:
    for read in reads:
        for batch in read_batches(read, COLUMNS):
            yield read, batch


def _roots(read: Artifact) -> dict[str, Path]:
    """Where the files of each source lie, or lay, by its label."""
    sources = read.manifest.facts.get("sources", [])
    return {s["label"]: root for s in sources if (root := root_of(s["path"])) is not None}
