"""Filters and redaction against datatrove's chain, both on the same documents in one run.

    uv run --with 'datatrove[processing]==0.9.0' --with spacy \\
        python benchmarks/filtering.py FILE.jsonl [--keep-unpunctuated] [--megabytes 20]

FILE is jsonl (plain or .zst) or Parquet with a column `text`. The chain is Gopher repetition,
Gopher quality, C4, FineWeb, each dropping at its first failure, then e-mail and public IP addresses
of what is kept. Verdicts are compared document by document, keep or drop and the failing rule, and
kept texts as the filters leave them. `--keep-unpunctuated` is C4 as FineWeb ran it. Each side's
figure is the CPU seconds of this process, from texts in memory to redacted texts in memory.
"""

import argparse
import io
import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard
from fairness import need, need_texts

from tasks.data.filtering.decisions import judge
from tasks.data.filtering.rules import WEB
from tasks.data.privacy.batch import find_all, replace_all

BATCH = 512
KINDS = ("email", "ip")
UNPUNCTUATED = "line_unpunctuated"
# datatrove's reasons by our rules.
RULES = {
    "dup_para_frac": "repeated_paragraphs",
    "dup_para_char_frac": "repeated_paragraph_chars",
    "dup_line_frac": "repeated_lines",
    "dup_line_char_frac": "repeated_line_chars",
    **{f"top_{n}_gram": f"top_{n}gram" for n in (2, 3, 4)},
    **{f"duplicated_{n}_n_grams": f"repeated_{n}grams" for n in range(5, 11)},
    "gopher_short_doc": "few_words",
    "gopher_long_doc": "many_words",
    "gopher_below_avg_threshold": "short_words",
    "gopher_above_avg_threshold": "long_words",
    "gopher_too_many_hashes": "many_hashes",
    "gopher_too_many_ellipsis": "many_ellipses",
    "gopher_too_many_bullets": "bullet_lines",
    "gopher_too_many_end_ellipsis": "ellipsis_lines",
    "gopher_below_alpha_threshold": "few_alphabetic_words",
    "gopher_enough_stop_words": "few_stop_words",
    "too_few_sentences": "few_sentences",
    "line_punct_ratio": "unpunctuated_lines",
    "empty": "unpunctuated_lines",
    "short_line_ratio": "short_lines",
    "char_dup_ratio": "repeated_text",
    "list_ratio": "many_newlines",
}


class Side(NamedTuple):
    """CPU seconds; a reason, or None, for each document; the texts kept, before redaction."""

    seconds: float
    reasons: list[str | None]
    texts: list[str | None]


def main() -> None:
    """Print speed, ratio, agreement and the disagreements by rule."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--keep-unpunctuated", action="store_true", help="C4 as FineWeb ran it")
    parser.add_argument("--megabytes", type=float, default=20, help="documents read, at most")
    options = parser.parse_args()
    need(datatrove="datatrove[processing]==0.9.0", spacy="spacy")
    texts = need_texts(list(read(options.file, int(options.megabytes * 1e6))), options.file)
    size = sum(len(text.encode()) for text in texts) / 1e6
    print(f"{len(texts)} documents, {size:.2f} MB")
    ours = headrace(texts, options.keep_unpunctuated)
    theirs = datatrove(texts, options.keep_unpunctuated)
    for name, side in (("headrace", ours), ("datatrove", theirs)):
        print(f"{name:10} {side.seconds:9.2f} CPU s {size / side.seconds:8.2f} MB per CPU second")
    print(f"ratio {theirs.seconds / ours.seconds:.1f}")
    compare(ours, theirs)


def headrace(texts: list[str], keep_unpunctuated: bool) -> Side:
    """Our chain on batches of Arrow text; compiled before the clock starts."""
    limits = {
        name: n for name, n in WEB.items() if not (keep_unpunctuated and name == UNPUNCTUATED)
    }
    table = pa.array(texts, pa.large_string())
    for _ in range(2):
        reasons: list[str | None] = []
        kept: list[pa.Array] = []
        started = time.process_time()
        for first in range(0, len(table), BATCH):
            verdicts = judge(table[first : first + BATCH], limits)
            mask = pa.array([reason is None for reason in verdicts.reasons])
            kept.append(verdicts.texts.filter(mask))
            replace_all(kept[-1], find_all(kept[-1], KINDS), _mask)
            reasons += verdicts.reasons
        seconds = time.process_time() - started
    left = iter(text for chunk in kept for text in chunk.to_pylist())
    return Side(seconds, reasons, [None if reason else next(left) for reason in reasons])


def _mask(kind: str, value: str) -> str:
    return f"<{kind.upper()}>"


def datatrove(texts: list[str], keep_unpunctuated: bool) -> Side:
    """Their chain, one document after the other; tokenizers loaded before the clock starts."""
    from datatrove.data import Document
    from datatrove.pipeline import filters
    from datatrove.pipeline.filters.base_filter import get_filter_result
    from datatrove.pipeline.formatters import PIIFormatter

    chain = [
        filters.GopherRepetitionFilter(),
        filters.GopherQualityFilter(),
        filters.C4QualityFilter(filter_no_terminal_punct=not keep_unpunctuated),
        filters.FineWebQualityFilter(),
    ]
    redact = PIIFormatter()

    def verdict(text: str) -> tuple[str | None, str | None]:
        document = Document(text=text, id="")
        for step in chain:
            try:
                keep, reason = get_filter_result(step.filter(document))
            except Exception as error:
                keep, reason = False, f"error:{type(error).__name__}"
            if not keep:
                return RULES.get(reason, reason), None
        redact.format(document.text)
        return None, document.text

    verdict("The tokenizer is loaded by its first document.")
    started = time.process_time()
    found = [verdict(text) for text in texts]
    seconds = time.process_time() - started
    return Side(seconds, [reason for reason, _ in found], [text for _, text in found])


def compare(ours: Side, theirs: Side) -> None:
    """Print on how many documents the sides agree, and where they do not."""
    pairs = list(zip(ours.reasons, theirs.reasons, strict=True))
    n = len(pairs)
    print(f"same verdict {sum((a is None) == (b is None) for a, b in pairs) / n:.2%} of documents")
    print(f"same rule    {sum(a == b for a, b in pairs) / n:.2%}")
    kept = [(a, b) for a, b in zip(ours.texts, theirs.texts, strict=True) if a and b]
    print(f"kept by both {len(kept)}, with the same text {sum(a == b for a, b in kept)}")
    by_rule = Counter(reason or "(kept)" for reason in theirs.reasons)
    print(f"\n{'rule':26} {'datatrove':>10} {'headrace':>9} {'differ':>7}")
    for rule in [*by_rule, *({a or "(kept)" for a, _ in pairs} - set(by_rule))]:
        mine = sum((a or "(kept)") == rule for a, _ in pairs)
        differ = sum(a != b and rule in (a or "(kept)", b or "(kept)") for a, b in pairs)
        print(f"{rule:26} {by_rule[rule]:10} {mine:9} {differ:7}")


def read(path: Path, most: int) -> Iterator[str]:
    """The texts of a file, until they are `most` bytes."""
    for text in _texts(path):
        most -= len(text.encode())
        if most < 0:
            return
        if text.strip():
            yield text


def _texts(path: Path) -> Iterator[str]:
    if path.suffix == ".parquet":
        for batch in pq.ParquetFile(path).iter_batches(BATCH, columns=["text"]):
            yield from batch.column(0).to_pylist()
        return
    with path.open("rb") as file:
        lines: Any = zstandard.ZstdDecompressor().stream_reader(file) if _is_zst(path) else file
        for line in io.TextIOWrapper(lines, encoding="utf-8"):
            yield json.loads(line)["text"]


def _is_zst(path: Path) -> bool:
    return path.suffix == ".zst"


if __name__ == "__main__":
    main()
