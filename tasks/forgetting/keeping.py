"""An erasure as it is kept: made of what was found, so that `read` decides of every row of a known
source as was decided here.
"""

import hashlib
import secrets
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from cluster.artifact import Artifact
from tasks.data.deduplication.normal import normalise
from tasks.data.reading.erasures import Erasure, source_key
from tasks.data.reading.refusals import refused, signed
from tasks.data.text import read_batches
from tasks.forgetting.rows import Found


def erasure_of(found: Found, reads: Sequence[Artifact]) -> Erasure:
    """The erasure of the rows that were found in these `read` artifacts. Its id is a hash of it."""
    texts = pa.array(
        sorted({t for every in found.texts.values() for t in every}), pa.large_string()
    )
    salt, created = secrets.token_hex(16), datetime.now(UTC).isoformat(timespec="seconds")
    bare = Erasure(id="", salt=salt, created=created, texts=())
    hashes = tuple(sorted({bare.hash(text) for text in normalise(texts).to_pylist()}))
    made = bare.model_copy(
        update={
            "id": hashlib.sha256("".join(hashes).encode()).hexdigest()[:16],
            "texts": hashes,
            "signs": signed(bare, texts),
            "clear": tuple(sorted(_clear(found, reads))),
        }
    )
    return made.model_copy(update={"spared": tuple(sorted(set(_spared(made, found, reads))))})


def sources_of(read: Artifact) -> list[dict[str, Any]]:
    """The sources of a `read` artifact as its identity has them."""
    sources: list[dict[str, Any]] = read.manifest.settings["settings"]["sources"]
    return sources


def key_of(source: dict[str, Any]) -> str:
    """What stands for such a source."""
    return source_key(source["content"], source["source"])


def _clear(found: Found, reads: Sequence[Artifact]) -> set[str]:
    """The known sources that have none of the rows."""
    known = [(read.fingerprint, source) for read in reads for source in sources_of(read)]
    taken = {key_of(s) for print_, s in known if s["name"] in found.labels.get(print_, ())}
    return {key_of(source) for _, source in known} - taken


def _spared(erasure: Erasure, found: Found, reads: Sequence[Artifact]) -> Iterator[str]:
    """Texts that look like near copies by their signatures alone, and are none."""
    for read in reads:
        ids = found.ids.get(read.fingerprint, set())
        for batch in read_batches(read, ["id", "text"]):
            wrong = batch.filter(pa.array(refused(erasure, batch["text"])))
            other = [t for i, t in zip(*_columns(wrong), strict=True) if i not in ids]
            yield from map(erasure.hash, normalise(pa.array(other, pa.large_string())).to_pylist())


def _columns(batch: pa.RecordBatch) -> tuple[list[str], list[str]]:
    return batch["id"].to_pylist(), batch["text"].to_pylist()
