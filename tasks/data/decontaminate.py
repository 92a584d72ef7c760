"""Stage `decontaminate`: documents that share an n-gram of words with an evaluation set leave.

Method: Brown et al. 2020 (GPT-3, arXiv 2005.14165, appendix C), n = 13; an item of fewer words is
one n-gram, unless it has fewer than `min_words`.
"""

from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from cluster.artifact import Artifact
from cluster.settings import NONE, Content, Contents, Settings
from cluster.stage import stage
from cluster.store import Draft

ITEMS = "items.jsonl"
SHOWN = 20


class FoundBenchmark(NamedTuple):
    """The file of an evaluation set."""

    name: str
    sha256: str


def _found(path: str) -> FoundBenchmark:
    from tasks.data.contamination.items import benchmark_file
    from tasks.data.reading.hashes import remembered_hash

    file = benchmark_file(path)
    return FoundBenchmark(file.name, remembered_hash(file.path))


BENCHMARK = Content(_found)


class BenchmarkSettings(Settings):
    """One evaluation set: a file of rows and the fields whose text must not be trained on."""

    path: Annotated[str, BENCHMARK] = Field(
        description="file of rows: jsonl, json, csv, parquet, plain or compressed"
    )
    name: str | None = Field(None, description="its name in the report; null is the file's name")
    fields: tuple[str, ...] = Field(
        ("text",), min_length=1, description="fields to look for, each on its own"
    )
    id: str | None = Field(None, description="the field that names an item; null is its number")

    def identity(self, found: Contents = NONE) -> dict[str, Any]:
        """The hash of the file in the place of its path; its name where it has no other."""
        file: FoundBenchmark = found[BENCHMARK, self.path]
        name = self.name or file.name
        return super().identity(found) | {"path": file.sha256, "name": name}


class DecontaminateSettings(Settings):
    """What must not be in the training text, and what happens to documents that hold it."""

    benchmarks: tuple[BenchmarkSettings, ...] = Field(min_length=1, description="evaluation sets")
    ngram: int = Field(13, ge=2, le=100, description="consecutive words that make a match")
    min_words: int = Field(8, ge=2, description="shorter items are not looked for")
    action: Literal["remove", "report"] = Field(
        "remove", description="remove documents that match, or only report them"
    )


@stage(version=1)
def decontaminate(text: Artifact, settings: DecontaminateSettings, draft: Draft) -> None:
    """Set aside (or report) the documents that match; `items.jsonl` says which items were found.

    Its rows: `benchmark`, `id`, `ngrams`, `found` (how many are in the corpus), `dirty`, and an
    example: `ngram`, `item`, `document`, `passage`. Later scores are split by `dirty`.
    Raises BadInput when an evaluation set cannot be read or holds nothing long enough to look for.
    """
    from functools import partial

    from tasks.data.blocks import map_text
    from tasks.data.contamination.items import read_items
    from tasks.data.contamination.search import Index, sort_block, verdicts

    items = read_items(settings)
    index = Index.build(items, settings.ngram, settings.min_words)
    index.save(draft.scratch / "index.npz")
    work = partial(sort_block, draft.scratch / "index.npz", items, settings)
    account = map_text(text, draft, work)
    rows = verdicts(items, index, account.notes)
    with (draft.path / ITEMS).open("w") as file:
        file.writelines(row.model_dump_json() + "\n" for row in rows)
    dirty = [row for row in rows if row.dirty]
    draft.facts["benchmarks"] = [
        {
            "name": name,
            "items": sum(row.benchmark == name for row in rows),
            "dirty": sum(row.benchmark == name for row in dirty),
        }
        for name in dict.fromkeys(row.benchmark for row in rows)
    ]
    draft.facts["examples"] = [row.model_dump() for row in dirty[:SHOWN]]
    draft.metrics["items_dirty"] = len(dirty)
    draft.metrics["items"] = len(rows)
