"""BERTScore beside bert-score on the same local encoder: same pairs, same layer, same values.

    uv run --with bert-score==0.3.13 python benchmarks/bertscore.py FOLDER LAYER FILE.jsonl

FOLDER is a BERT saved with its fast tokenizer; FILE has rows {"prediction", "reference"}.
"""

import json
import sys
import time
from pathlib import Path

from fairness import need, need_texts

from tasks.evaluation.embedding.bertscore import BertScore

PARTS = ("precision", "recall", "fmeasure")


def main(folder: str, layer: int, path: Path) -> None:
    """Time both on the same pairs, each after a warm-up, and compare every value."""
    need(bert_score="bert-score==0.3.13")
    import bert_score

    rows = [json.loads(line) for line in path.read_text().splitlines()]
    predictions, references = [r["prediction"] for r in rows], [r["reference"] for r in rows]
    need_texts(predictions, path)
    scorer = BertScore(Path(folder), layer)
    peer = bert_score.BERTScorer(model_type=folder, num_layers=layer)
    scorer.score(predictions[:4], [[text] for text in references[:4]])
    peer.score(predictions[:4], references[:4])
    started = time.process_time()
    ours, _ = scorer.score(predictions, [[text] for text in references])
    own_seconds = time.process_time() - started
    started = time.process_time()
    theirs = peer.score(predictions, references)
    peer_seconds = time.process_time() - started
    gap = max(
        abs(row[part] - float(column[i]))
        for i, row in enumerate(ours)
        for part, column in zip(PARTS, theirs, strict=True)
    )
    print(f"{'':12}{'CPU s':>10}{'pairs/s':>12}")
    print(f"{'headrace':12}{own_seconds:10.3f}{len(rows) / own_seconds:12.1f}")
    print(f"{'bert-score':12}{peer_seconds:10.3f}{len(rows) / peer_seconds:12.1f}")
    print(f"ratio {peer_seconds / own_seconds:.2f}, largest difference {gap:.2g}")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
