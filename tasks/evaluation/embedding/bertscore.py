"""BERTScore: every token matched with the most similar one of the other text.

    headrace score FILE.jsonl --metrics bertscore --encoder FOLDER --layer 9 [--baseline FILE.tsv]

Source: Zhang et al., BERTScore: evaluating text generation with BERT, 2020, section 3. Special
tokens count nothing but may be matched, as in the authors' code.

Letters: B pairs, P and R tokens of prediction and reference, D width.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from cluster.errors import BadInput
from tasks.data.reading.hashes import file_hash
from tasks.evaluation.embedding.embeddings import Embedded, TextEncoder, inverse_frequencies

PAIRS, CHUNK = 64, 4096
PARTS = ("precision", "recall", "fmeasure")


@dataclass(frozen=True)
class BertScore:
    """`layer` of the encoder in `folder` (None: its last); `baseline`: a file `LAYER,P,R,F` whose
    values, those of unrelated texts, become 0; `idf` weighs tokens by rareness in the references.
    """

    folder: Path
    layer: int | None = None
    baseline: Path | None = None
    idf: bool = False

    def score(
        self, predictions: Sequence[str], references: Sequence[Sequence[str]]
    ) -> tuple[list[dict[str, float]], str]:
        """Per row `{precision, recall, fmeasure}`, and the signature.

        Of several references each part is the best one's. Raises BadInput for an unusable folder,
        layer or baseline.
        """
        encoder = self.encoder
        base = _baseline(self.baseline, encoder.layer) if self.baseline else None
        pairs = [
            (prediction, text)
            for prediction, row in zip(predictions, references, strict=True)
            for text in row
        ]
        values = match(encoder, pairs, self.idf)
        if base is not None:
            values = (values - base) / (1 - base)
        rows, at = [], 0
        for row in references:
            best = values[at : at + len(row)].max(0).values
            rows.append(dict(zip(PARTS, best.tolist(), strict=True)))
            at += len(row)
        return rows, self.signature

    @cached_property
    def encoder(self) -> TextEncoder:
        """The encoder, loaded once."""
        return TextEncoder(self.folder, self.layer)

    @cached_property
    def signature(self) -> str:
        """All that a value depends on besides the texts."""
        weights = self.folder.resolve() / "model.safetensors"
        encoder = f"{weights.parent.name}@{file_hash(weights)[:12]}"
        base = f"{self.baseline.name}@{file_hash(self.baseline)[:12]}" if self.baseline else "no"
        choices = f"layer:{self.encoder.layer}|idf:{self.idf}|baseline:{base}"
        return f"bertscore|{encoder}|{choices}|headrace:3"


def match(encoder: TextEncoder, pairs: Sequence[tuple[str, str]], idf: bool = False) -> Tensor:
    """Precision, recall and F of each pair (prediction, reference), `[pairs, 3]`. With `idf`, a
    reference that several pairs have counts as often.
    """
    weights = None
    if idf:
        known = encoder.embed([b for _, b in pairs])
        weights = inverse_frequencies([known[b] for _, b in pairs])
    found = []
    for first in range(0, len(pairs), CHUNK):
        chunk = pairs[first : first + CHUNK]
        known = encoder.embed([text for pair in chunk for text in pair])
        found.append(_match_chunk([(known[a], known[b]) for a, b in chunk], weights))
    return torch.cat(found) if found else torch.zeros(0, 3)


def _match_chunk(pairs: list[tuple[Embedded, Embedded]], idf: Mapping[int, float] | None) -> Tensor:
    """As `match`, of pairs that are embedded: those of like length together, `[pairs, 3]`."""
    order = sorted(range(len(pairs)), key=lambda i: (len(pairs[i][1].ids), len(pairs[i][0].ids)))
    values = torch.zeros(len(pairs), 3)
    for first in range(0, len(order), PAIRS):
        rows = [i for i in order[first : first + PAIRS] if all(t.real_T.any() for t in pairs[i])]
        if rows:
            values[rows] = _match_batch([pairs[i] for i in rows], idf)
    return values


def _match_batch(pairs: list[tuple[Embedded, Embedded]], idf: Mapping[int, float] | None) -> Tensor:
    predicted_BPD, p_BP, no_BP = _padded([a for a, _ in pairs], idf)
    referred_BRD, r_BR, no_BR = _padded([b for _, b in pairs], idf)
    alike_BPR = predicted_BPD @ referred_BRD.transpose(1, 2)
    precision_B = (alike_BPR.masked_fill(no_BR[:, None], -1.0).max(2).values * p_BP).sum(1)
    recall_B = (alike_BPR.masked_fill(no_BP[..., None], -1.0).max(1).values * r_BR).sum(1)
    f_B = 2 * precision_B * recall_B / (precision_B + recall_B)
    return torch.stack([precision_B, recall_B, f_B.nan_to_num(0.0)], dim=1)


def _padded(
    texts: list[Embedded], idf: Mapping[int, float] | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Vectors `[B, T, D]`, weights `[B, T]`, and where there is neither, `[B, T]`."""
    vectors = pad_sequence([text.vectors_TD for text in texts], batch_first=True)
    weights = pad_sequence([text.weights(idf) for text in texts], batch_first=True)
    missing = [torch.zeros(len(text.ids), dtype=torch.bool) for text in texts]
    return vectors, weights, pad_sequence(missing, batch_first=True, padding_value=True)


def _baseline(path: Path, layer: int) -> Tensor:
    """Precision, recall and F of unrelated texts at a layer, from `LAYER,P,R,F` lines."""
    try:
        lines = path.read_text().replace("\t", ",").splitlines()[1:]
        rows = {int(n): [float(x) for x in rest] for n, *rest in (x.split(",") for x in lines if x)}
    except (OSError, ValueError) as error:
        raise BadInput(f"baseline {path}: {error}; expected lines of LAYER,P,R,F") from error
    if layer not in rows:
        raise BadInput(
            f"baseline {path} has no layer {layer}; it has {', '.join(map(str, sorted(rows)))}"
        )
    return torch.tensor(rows[layer])
