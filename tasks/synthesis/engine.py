"""Asks carried out block by block: what a model made, every ask accounted for.

    scratch/asks/00000.jsonl, ...    what is to be asked, the same in every attempt
    scratch/blocks/00000/            made.jsonl: an outcome for each ask; used.json

An attempt that was killed goes on with the blocks that are not finished, and of those with the asks
that have no reply yet: replies are kept as they come. An endpoint is asked from this process, where
its budgets are kept; a model of our own runs on all nodes.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from cluster.handover import here, share
from cluster.store import Draft
from tasks.data.blocks import forgetting, make_blocks
from tasks.data.ledger import Splitter
from tasks.data.privacy.pii import mask
from tasks.data.row_files import write_json_lines
from tasks.data.text import TEXT_SCHEMA, parquet_writer
from tasks.synthesis.failures import check_failed, is_failure
from tasks.synthesis.kinds import Outcome, templates_of
from tasks.synthesis.near import Earlier
from tasks.synthesis.pairs import Pair, shown
from tasks.synthesis.passages import Ask
from tasks.synthesis.settings import (
    SOURCE,
    GradeSettings,
    SynthesizeSettings,
)
from tasks.synthesis.writers import Writer, WriterPlan, writer_at

BLOCK_ASKS = 256
SAMPLES, SAMPLE_CHARS = 3, 1200
MADE, USED = "made.jsonl", "used.json"
PROVENANCE = pa.schema(
    [
        *(pa.field(n, pa.string(), nullable=False) for n in ("id", "row", "kind", "how")),
        *(pa.field(n, pa.string(), nullable=False) for n in ("templates", "sha256", "model")),
        pa.field("seed", pa.int64(), nullable=False),
        pa.field("temperature", pa.float64(), nullable=False),
        pa.field("top_p", pa.float64(), nullable=False),
        pa.field("max_tokens", pa.int64(), nullable=False),
        pa.field("score", pa.float64()),
    ]
)
"""What every row was made from and by: `templates` are names of prompts with a comma between
them, `sha256` the hashes of their words likewise."""
Work = Callable[[Sequence[Ask], Writer], list[Outcome]]
Found = dict[str, Any]


def carry_out(
    draft: Draft,
    asked: Iterable[Ask],
    work: Work,
    plan: WriterPlan,
    settings: SynthesizeSettings | GradeSettings,
) -> None:
    """Do the work of every ask; the draft gets rows, ledger, provenance and facts. Raises BadInput
    as soon as more requests got no reply than the settings allow.
    """
    files = _write_asks(draft, asked)
    counts = [count for _, count in files]
    paths = [path for path, _ in files]
    do = partial(_block, plan, work)
    folders = make_blocks(draft, paths, do, counts, unit="texts", alone=plan.folder is None)
    tally = Tally(plan, settings)
    with (
        forgetting(draft),
        Splitter(draft.path) as rows,
        parquet_writer(draft.path / "provenance.parquet", PROVENANCE) as provenance,
    ):
        for folder in folders:
            lines = (folder / MADE).read_text().splitlines()
            tally.take([json.loads(line) for line in lines], rows, provenance)
            tally.used.update(json.loads((folder / USED).read_text()))
            check_failed(tally.failed, tally.words, sum(counts), settings)
    rows.account.close(draft)
    draft.facts |= tally.facts()


def _write_asks(draft: Draft, asked: Iterable[Ask]) -> list[tuple[Path, int]]:
    """Files of asks, each with their number."""
    folder = draft.scratch / "asks"
    folder.mkdir(exist_ok=True)
    rest, files = iter(asked), []
    while block := list(islice(rest, BLOCK_ASKS)):
        files.append((folder / f"{len(files):05d}.jsonl", len(block)))
        write_json_lines(files[-1][0], (ask._asdict() for ask in block))
    share(folder)
    return files


def _block(plan: WriterPlan, work: Work, number: int, path: Path, folder: Path) -> None:
    """Carry out the asks of one file."""
    asked = [Ask(**json.loads(line)) for line in here(path).read_text().splitlines()]
    writer = writer_at(plan)
    outcomes = work(asked, writer)
    found = zip(asked, outcomes, strict=True)
    write_json_lines(folder / MADE, (ask._asdict() | one._asdict() for ask, one in found))
    # What an endpoint took is in its account, for all blocks together.
    used = writer.used if plan.folder else {}
    (folder / USED).write_text(json.dumps(used))


class Tally:
    """What came of the asks so far."""

    def __init__(self, plan: WriterPlan, settings: SynthesizeSettings | GradeSettings) -> None:
        self.used, self.failed, self.words = Counter[str](), Counter[str](), dict[str, str]()
        self._plan = plan
        self._most = settings.most_alike if isinstance(settings, SynthesizeSettings) else {}
        self._earlier = Earlier()
        self._counts: dict[str, Counter[str]] = defaultdict(Counter)
        self._dropped = Counter[str]()
        self._samples: dict[str, list[Found]] = defaultdict(list)
        self._templates: dict[str, str] = {}
        self._scores = Counter[str]()

    def take(self, block: Sequence[Found], rows: Splitter, provenance: Any) -> None:
        """Sort the outcomes of a block."""
        kept = []
        for found in self._told_apart(block):
            counts = self._counts[found["kind"]]
            counts["asked"] += 1
            if reason := found.get("reason"):
                self._refuse(found, reason, rows)
            else:
                counts["made"] += 1
                counts["pairs"] += len(found["pairs"])
                kept.append(found)
                self._note(found)
            self._dropped.update(found.get("dropped", {}))
        rows.keep(pa.RecordBatch.from_pylist([_row(found) for found in kept], TEXT_SCHEMA))
        origins = [self._origin(found) for found in kept]
        provenance.write_table(pa.Table.from_pylist(origins, PROVENANCE))

    def facts(self) -> dict[str, Any]:
        """What the artifact says of them."""
        plan = self._plan
        return {
            "model": plan.model,
            "sampling": plan.sampling._asdict(),
            "kinds": {kind: dict(counts) for kind, counts in self._counts.items()},
            "dropped": dict(self._dropped),
            "failed": dict(self.failed),
            "words": self.words,
            "templates": self._templates,
            "scores": dict(sorted(self._scores.items())),
            "used": dict(self.used) if plan.folder else writer_at(plan).used,
            "shown": [one for samples in self._samples.values() for one in samples],
        }

    def _told_apart(self, block: Sequence[Found]) -> Iterator[Found]:
        """The outcomes, without pairs that ask what an earlier one asks."""
        asked = [(n, pair) for n, one in enumerate(block) for pair in one.get("pairs", ())]
        most = [self._most[block[n]["kind"]] for n, _ in asked]
        fresh = self._earlier.take([pair[0] for _, pair in asked], most)
        new: dict[int, list[Any]] = defaultdict(list)
        for (n, pair), is_new in zip(asked, fresh, strict=True):
            if is_new:
                new[n].append(pair)
        for n, one in enumerate(block):
            if old := one.get("pairs"):
                dropped = Counter(one["dropped"])
                if lost := len(old) - len(new[n]):
                    dropped["near_duplicate"] += lost
                one = one | {"pairs": new[n], "dropped": dropped}
                if not new[n]:
                    one |= {"reason": "near_duplicate", "said": old[0][0]}
            yield one

    def _refuse(self, found: Found, reason: str, rows: Splitter) -> None:
        rows.reject(found["id"], found["row"], f"{found['kind']}:{reason}", found["said"])
        if is_failure(reason):
            self.failed[reason] += 1
        if found["said"]:
            self.words.setdefault(reason, mask(found["said"][:300]))

    def _note(self, found: Found) -> None:
        samples = self._samples[found["kind"]]
        if len(samples) < SAMPLES:
            texts = {"passage": found["passage"], "text": _text(found)}
            cut = {key: mask(text[:SAMPLE_CHARS]) for key, text in texts.items()}
            named = {name: found[name] for name in ("kind", "how", "row", "score")}
            samples.append(named | cut)
        if found["score"] is not None:
            self._scores[str(round(found["score"]))] += 1

    def _origin(self, found: Found) -> dict[str, Any]:
        templates = templates_of(found["kind"], found["how"])
        self._templates |= {one.name: one.sha256 for one in templates}
        return {
            **{name: found[name] for name in ("id", "row", "kind", "how", "seed", "score")},
            "templates": ",".join(one.name for one in templates),
            "sha256": ",".join(one.sha256 for one in templates),
            "model": self._plan.identity,
            **self._plan.sampling._asdict(),
        }


def _row(found: Found) -> dict[str, Any]:
    return {
        "id": found["id"],
        "text": _text(found),
        "source": SOURCE + found["kind"],
        "origin": found["row"],
        "license": found["license"],
        "label": found["label"],
    }


def _text(found: Found) -> str:
    if found["pairs"]:
        return shown([Pair(*pair) for pair in found["pairs"]], found["kind"])
    return str(found["text"])
