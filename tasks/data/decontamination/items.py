"""The items of evaluation sets, read by the same readers as the sources."""

import logging
from pathlib import Path
from typing import NamedTuple

from cluster.errors import BadInput
from tasks.data.decontamination.settings import (
    BenchmarkSettings,
    DecontaminateSettings,
    benchmark_file,
)
from tasks.data.reading.settings import SourceSettings

log = logging.getLogger("headrace.decontaminate")


class Item(NamedTuple):
    """One field of one item; an item with several fields has several of these."""

    benchmark: str
    id: str
    text: str


def read_items(settings: DecontaminateSettings) -> list[Item]:
    """Every field of every item of all sets.

    Raises BadInput for a set without a usable row or with a field that no row has.
    """
    return [item for benchmark in settings.benchmarks for item in _read(benchmark)]


def _read(benchmark: BenchmarkSettings) -> list[Item]:
    from tasks.data.reading.whole import read_source

    file = benchmark_file(benchmark.path)
    name, found = benchmark.name or Path(file.name).name, []
    for field in benchmark.fields:
        settings = SourceSettings(path=benchmark.path, text=field, id=benchmark.id)
        table, account = read_source(settings)
        if account.reasons:
            log.warning("%s: rows without '%s': %s", file.path, field, dict(account.reasons))
        for id, text in zip(table["id"].to_pylist(), table["text"].to_pylist(), strict=True):
            found.append(Item(name, id.removeprefix(f"{file.name}/"), text))
    if not found:
        fields = ", ".join(benchmark.fields)
        raise BadInput(f"decontaminate: no row of {file.path} has a text in {fields}")
    return found
