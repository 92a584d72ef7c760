"""Redaction beside its peers, and precision and recall on labelled sentences, on the same texts.

    uv run --with datatrove==0.9.0 --with presidio-analyzer python benchmarks/redaction.py TEXTS
        [--labelled FILE ...]

TEXTS is a `.jsonl` file with a `text` field, or a folder of `.py` files. Both sides get the texts
in the form they take (Arrow here, Python strings there) and replace e-mail and IP addresses, the
two kinds that datatrove's PIIFormatter knows; ours is also timed with all its default kinds. CPU
seconds of one process, after a first run that loads and compiles. Redactions per MB are printed by
kind: on a folder of source code, what is redacted there is nearly all false.
"""

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from fairness import need_texts

from tasks.data.privacy.batch import char_spans, find_all, replace_all
from tasks.data.privacy.pii import DEFAULT_KINDS
from tasks.data.privacy.quality import OWN, PRESIDIO, measure, read_labelled, table
from tasks.data.privacy.spans import Span
from tasks.data.privacy.stage import replacer

BATCH = 512
SHARED = ("email", "ip")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("texts", type=Path)
    parser.add_argument("--labelled", type=Path, nargs="*", default=[OWN])
    options = parser.parse_args()
    texts = need_texts(read_texts(options.texts), options.texts)
    speeds(texts)
    for path in options.labelled:
        qualities(path)


def read_texts(path: Path) -> list[str]:
    """The texts of a jsonl file or of the Python files below a folder."""
    if path.is_file():
        return [json.loads(line)["text"] for line in path.read_text().splitlines()]
    files = sorted(path.rglob("*.py"))
    return [f.read_bytes().decode(errors="ignore").replace("\0", "") for f in files if f.is_file()]


def speeds(texts: list[str]) -> None:
    """MB per CPU-second of each side, and the ratio to the first peer."""
    arrays = [
        pa.array(texts[k : k + BATCH], pa.large_string()) for k in range(0, len(texts), BATCH)
    ]
    size = sum(len(text.encode()) for text in texts) / 1e6
    sides: dict[str, Callable[[], Any]] = {
        "headrace, e-mail and IP": lambda: ours(arrays, SHARED),
        "headrace, all default kinds": lambda: ours(arrays, DEFAULT_KINDS),
    }
    if formatter := datatrove():
        sides["datatrove PIIFormatter, e-mail and IP"] = lambda: [formatter(t) for t in texts]
    found = ours(arrays, DEFAULT_KINDS)
    rates = {name: size / cpu_seconds(run) for name, run in sides.items()}
    print(f"{size:.1f} MB in {len(texts)} texts")
    for name, rate in rates.items():
        print(f"{name:40} {rate:8.1f} MB per CPU-second")
    if formatter:
        first, _, peer = rates.values()
        print(f"ratio, e-mail and IP: {first / peer:.1f}")
    per_mb = ", ".join(f"{kind} {n / size:.2f}" for kind, n in sorted(found.items()))
    print(f"redactions per MB: {per_mb or 'none'}\n")


def cpu_seconds(run: Callable[[], Any]) -> float:
    """The least CPU time of three runs."""
    seconds = []
    for _ in range(3):
        start = time.process_time()
        run()
        seconds.append(time.process_time() - start)
    return min(seconds)


def ours(arrays: list[pa.Array], kinds: tuple[str, ...]) -> Counter[str]:
    """Redact all arrays; the redactions by kind."""
    counts: Counter[str] = Counter()
    for array in arrays:
        found = find_all(array, kinds)
        counts.update(span.kind for spans in found.values() for span in spans)
        replace_all(array, found, replacer("mask"))
    return counts


def datatrove() -> Callable[[str], str] | None:
    """Its formatter, private IP addresses included as ours does; None when not installed."""
    try:
        from datatrove.pipeline.formatters import PIIFormatter
    except ImportError:
        return None
    formatter = PIIFormatter(only_remove_public_ips=False)
    return lambda text: formatter.format(text)


def qualities(path: Path) -> None:
    """Precision and recall of each side on labelled sentences."""
    rows = read_labelled(path)
    sides = {"headrace": our_spans, "presidio-analyzer": presidio()}
    for name, spans in sides.items():
        if spans is not None:
            print(f"{path.name}, {name}")
            print("\n".join(table(measure(rows, spans, DEFAULT_KINDS))), end="\n\n")


def our_spans(text: str) -> list[Span]:
    """What is found in one text."""
    found = find_all(pa.array([text], pa.large_string()), DEFAULT_KINDS)
    return char_spans(text, found.get(0, ()))


def presidio() -> Callable[[str], list[Span]] | None:
    """Its pattern recognisers for English, without the language model; None when not installed."""
    try:
        from presidio_analyzer import predefined_recognizers as known
    except ImportError:
        return None
    names = ("Email", "Ip", "CreditCard", "Iban", "Phone", "UsSsn")
    recognisers = [getattr(known, f"{name}Recognizer")() for name in names]

    def spans(text: str) -> list[Span]:
        results = [r for k in recognisers for r in k.analyze(text, k.supported_entities, None)]
        return [Span(r.start, r.end, PRESIDIO[r.entity_type]) for r in results]

    return spans


if __name__ == "__main__":
    main()
