"""Stage `decontaminate`: documents that share an n-gram of words with an evaluation set leave.

Method: Brown et al. 2020 (GPT-3, arXiv 2005.14165, appendix C), n = 13; an item of fewer words is
one n-gram, unless it has fewer than `min_words`.
"""

import logging

from cluster.artifact import Artifact
from cluster.handover import share
from cluster.stage import stage
from cluster.store import Draft
from tasks.data.decontamination.items import read_items
from tasks.data.decontamination.settings import DecontaminateSettings

ITEMS = "items.jsonl"
log = logging.getLogger("headrace.decontaminate")
SHOWN = 20


@stage(version=2)
def decontaminate(text: Artifact, settings: DecontaminateSettings, draft: Draft) -> None:
    """Set aside (or report) the documents that match; `items.jsonl` says which items were found.

    Rows of `items.jsonl`: `benchmark`, `id`, `ngrams` of the item, how many of them were `found` in
    the corpus, `dirty` (one was), and the first match: `ngram`, `item`, `document`, `passage`.
    Later scores are split by `dirty`. Items of too few words are not looked for; the metric
    `items_too_short` counts them, beside `items` and `items_dirty`.
    Facts: `benchmarks`, these counts by set, and `examples`, the first dirty rows.
    Raises BadInput when an evaluation set cannot be read or holds nothing long enough to look for.
    """
    from functools import partial

    from tasks.data.blocks import map_text
    from tasks.data.decontamination.search import Index, split_block, too_short, verdicts

    items = read_items(settings)
    index = Index.build(items, settings.ngram, settings.min_words)
    folder = draft.scratch / "index"
    folder.mkdir(exist_ok=True)
    index.save(folder / "index.npz")
    share(folder)
    work = partial(split_block, folder / "index.npz", items, settings)
    account = map_text(text, draft, work)
    rows = verdicts(items, index, account.notes)
    short = too_short(items, rows)
    if short:
        log.warning(
            "%d of %d items have fewer than %d words and were not looked for",
            short.total(),
            len(rows) + short.total(),
            settings.min_words,
        )
    with (draft.path / ITEMS).open("w") as file:
        file.writelines(row.model_dump_json() + "\n" for row in rows)
    dirty = [row for row in rows if row.dirty]
    draft.facts["benchmarks"] = [
        {
            "name": name,
            "items": sum(row.benchmark == name for row in rows),
            "dirty": sum(row.benchmark == name for row in dirty),
            "too_short": short[name],
        }
        for name in dict.fromkeys(item.benchmark for item in items)
    ]
    draft.facts["examples"] = [row.model_dump() for row in dirty[:SHOWN]]
    draft.metrics["items_dirty"] = len(dirty)
    draft.metrics["items"] = len(rows)
    draft.metrics["items_too_short"] = short.total()
