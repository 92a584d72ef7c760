"""ROUGE-1, ROUGE-2 and ROUGE-Lsum, stemmed, beside rouge-score: same pairs, same values.

    uv run --with rouge-score==0.1.2 python benchmarks/rouge.py FILE.jsonl

FILE has rows {"prediction", "reference"}, ASCII for the values to be equal; lines are sentences.
"""

import json
import sys
import time
from pathlib import Path

from fairness import need, need_texts

from tasks.evaluation.overlap.rouge import rouge

METRICS = ["rouge1", "rouge2", "rougeLsum"]


def main(path: Path) -> None:
    """Time both on the same pairs and compare every value."""
    need(rouge_score="rouge-score==0.1.2")
    from rouge_score.rouge_scorer import RougeScorer

    rows = [json.loads(line) for line in path.read_text().splitlines()]
    predictions, references = [r["prediction"] for r in rows], [r["reference"] for r in rows]
    need_texts(predictions, path)
    rouge(predictions[:2], [[text] for text in references[:2]], METRICS, stem=True)  # compile
    started = time.process_time()
    ours = rouge(predictions, [[text] for text in references], METRICS, stem=True)
    own = time.process_time() - started
    scorer = RougeScorer(METRICS, use_stemmer=True)
    started = time.process_time()
    theirs = [scorer.score(r, p) for p, r in zip(predictions, references, strict=True)]
    peer = time.process_time() - started
    gap = max(
        abs(a[m][part] - getattr(b[m], part))
        for a, b in zip(ours, theirs, strict=True)
        for m in METRICS
        for part in ("precision", "recall", "fmeasure")
    )
    print(f"{'':12}{'CPU s':>10}{'pairs/s':>12}")
    print(f"{'headrace':12}{own:10.3f}{len(rows) / own:12.0f}")
    print(f"{'rouge-score':12}{peer:10.3f}{len(rows) / peer:12.0f}")
    print(f"ratio {peer / own:.1f}, largest difference {gap:.2g}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
