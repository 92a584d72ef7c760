"""Settings of stage `decontaminate`: the evaluation sets, and what is a match."""

from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from cluster.errors import BadInput
from cluster.settings import NONE, Content, Contents, Settings
from tasks.data.reading.hashes import remembered_hash
from tasks.data.reading.settings import SourceSettings
from tasks.data.reading.sources import SourceFile, resolve


class FoundBenchmark(NamedTuple):
    """The file of an evaluation set."""

    name: str
    sha256: str


def _found(path: str) -> FoundBenchmark:
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


def benchmark_file(path: str) -> SourceFile:
    """The one file of an evaluation set. Raises BadInput when there is none, or several."""
    (source,) = resolve((SourceSettings(path=path),))
    if len(source.files) != 1:
        raise BadInput(
            f"decontaminate: '{path}' is {len(source.files)} files; name each file as a "
            "benchmark of its own"
        )
    return source.files[0]
