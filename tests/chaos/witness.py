"""What an undisturbed run makes, to hold the result of a disturbed one against."""

import hashlib
import json
import re
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from cluster.artifact import Artifact
from cluster.manifest import FileRecord
from tasks.tokens.loader import Loader
from tasks.tokens.shards.documents import read_documents

STEPS = "metrics.jsonl"  # its rows say how long a step took
MARKED = re.compile("between marks that end in ([0-9a-f]{12}) is material")
TRAINED = ("pretrain", "classify", "instruct")


def content(artifact: Artifact) -> dict[str, FileRecord]:
    """What a stage made, file by file, but for those in which times stand."""
    return {name: kept for name, kept in artifact.manifest.files.items() if name != STEPS}


@dataclass(frozen=True)
class Witness:
    """A hash of the documents that are left, by their ids; one of their tokens that no order
    changes; one of the bits of every step's loss; and one of each question that a judge was asked.
    """

    documents: str
    tokens: str
    losses: str
    questions: list[str]

    @classmethod
    def of(cls, stages: Mapping[str, Path], questions: Iterable[str]) -> "Witness":
        """The witness of a run: the folders of its stages, and what its judge was asked."""
        return cls(
            documents=_hash(sorted(_ids(stages["redact"]))),
            tokens=str(_tokens(Artifact.load(stages["shards"]))),
            losses=_hash([row for name in TRAINED for row in losses(stages[name])]),
            questions=sorted(set(questions)),
        )

    def differs(self, clean: "Witness", unasked: bool) -> list[str]:
        """What is not as in the clean run; questions may be `unasked` where a judge failed."""
        found = [k for k in ("documents", "tokens", "losses") if vars(self)[k] != vars(clean)[k]]
        if other := set(self.questions) - set(clean.questions):
            found.append(f"{len(other)} other questions")
        if (missing := set(clean.questions) - set(self.questions)) and not unasked:
            found.append(f"{len(missing)} questions not asked")
        return found


def question(body: Mapping[str, Any]) -> str:
    """A hash of what a judge is asked, whichever random marks a home puts around material."""
    text = json.dumps(body["messages"], sort_keys=True)
    for mark in MARKED.findall(text):
        text = text.replace(mark, "mark")
    return _hash([text])


def _ids(text: Path) -> list[str]:
    return [str(one) for p in text.glob("*.parquet") for one in pq.read_table(p)["id"].to_pylist()]


def _tokens(shards: Artifact) -> int:
    total = 0
    for split in ("train", "heldout"):
        stream = Loader(shards, split, 8, 0).stream
        tokens = stream.span(0, len(stream))
        lengths = read_documents(shards, split, "length")["length"].to_numpy()
        for document in np.split(tokens, lengths.cumsum()[:-1]):
            told = hashlib.sha256(np.ascontiguousarray(document).tobytes()).digest()
            total += int.from_bytes(told[:8])
    return total % 2**64


def losses(trained: Path) -> list[str]:
    """Each step that a training tells of, with the bits of its loss."""
    rows = [json.loads(line) for line in (trained / STEPS).read_text().splitlines()]
    return [f"{row['step']} {float(row['loss']).hex()}" for row in rows if "loss" in row]


def _hash(lines: Any) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def left_running(home: Path) -> int:
    """How many runs a home's trackers show as going on."""
    with sqlite3.connect(home / "mlflow" / "mlflow.db") as mlflow:
        (tracked,) = mlflow.execute("select count(*) from runs where status = 'RUNNING'").fetchone()
    with sqlite3.connect(home / "prefect" / "prefect.db") as prefect:
        states = "select count(*) from flow_run where state_type in ('RUNNING', 'CANCELLING')"
        (shown,) = prefect.execute(states).fetchone()
    records = [json.loads(path.read_text()) for path in (home / "runs").glob("*.json")]
    return int(tracked) + int(shown) + sum(one["status"] == "running" for one in records)
