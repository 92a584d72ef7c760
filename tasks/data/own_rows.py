"""Rows of text through a function of the user's own, block by block, on all nodes."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import pyarrow as pa

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.own import Portable
from cluster.settings import nearest
from cluster.store import Draft
from tasks.data.blocks import map_text
from tasks.data.ledger import Splitter
from tasks.data.text import TEXT_SCHEMA

Row = dict[str, Any]


def map_rows(
    text: Artifact, draft: Draft, function: Callable[[Row], Mapping[str, Any] | str | bool | None]
) -> None:
    """Keep, change or reject every row of an artifact of text; the draft gets rows and ledger.

    The function takes a row (`id`, `text`, `source`, `origin`, `license`, `label`). True or None
    keeps it, a mapping keeps it with these values instead; False rejects it with the function's
    name as the reason, a string with that.
    Raises BadInput for values that no row can have; what the function raises fails the stage.
    """
    map_text(text, draft, partial(_map_block, Portable(function)))


def _map_block(function: Portable, batches: Iterator[pa.RecordBatch], rows: Splitter) -> None:
    for batch in batches:
        kept = []
        for row in batch.to_pylist():
            answer = _answer(function, row)
            if isinstance(answer, str):
                rows.reject(row["id"], row["origin"], answer, row["text"])
            else:
                kept.append(row | answer)
        try:
            rows.keep(pa.RecordBatch.from_pylist(kept, TEXT_SCHEMA))
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise BadInput(f"{function.name} returned what no row can have: {error}") from error


def _answer(function: Portable, row: Row) -> Mapping[str, Any] | str:
    """The reason to reject a row, or what changes in it."""
    try:
        answer = function(row)
    except Exception as error:
        error.add_note(f"{function.name}, on the row {row['id']}")
        raise
    if answer is None or answer is True:
        return {}
    if isinstance(answer, Mapping):
        if wrong := sorted(set(answer) - set(TEXT_SCHEMA.names)):
            names = nearest(wrong[0], TEXT_SCHEMA.names)
            raise BadInput(f"{function.name} returned a column '{wrong[0]}': {names}")
        return answer
    if answer is False or isinstance(answer, str):
        return answer or function.name
    raise BadInput(
        f"{function.name} returned {answer!r}: True or None keeps a row, a mapping changes it, "
        "False or a reason rejects it"
    )
