"""Contextual embeddings of texts, or of a word in each, and senses of words by nearest centroid:
the functions behind `headrace embed`.

An embedding is the mean of the last layers' states, over the tokens of the text or of the target
word. States between layers go through the network's last norm, as those of the last layer do. Of
the senses of a word that one is chosen whose centroid, the mean embedding of its examples, has the
highest cosine with the word's embedding (Peters et al. 2018; Melamud et al. 2016).
"""

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cluster.errors import BadInput
from tasks.data.row_files import read_row_file

if TYPE_CHECKING:
    import torch

    from model.generation import Network
    from tasks.tokens.encoder import Encoder
    from tasks.tokens.frames import Frame

BATCH_TOKENS = 4096
Token = tuple[int, int, int]
"""Its id; the first character of the text that it stands for, and the one behind its last."""


@dataclass(frozen=True)
class Fields:
    """The names of the fields that are read of a row. With `target` the embedding is that of a word
    in the text, which the field gives as the word, or as the numbers of its first character and the
    one behind it.
    """

    text: str
    target: str | None
    sense: str


@dataclass(frozen=True)
class Example:
    """A row: the tokens around its target, which of them are the target's, the target's word in
    lower case, and its sense if it has one.
    """

    id: str
    tokens: list[Token]
    chosen: range
    word: str
    sense: str | None


def embed_file(
    model: Path, rows: Path, to: Path, fields: Fields, layers: str, centroids: Path | None
) -> dict[str, Any]:
    """Write the embedding of every row, as Parquet: `id`, `vector`, and, with a file of `centroids`
    (rows whose senses are known), the `sense` that is nearest.

    `rows`, `width`, `failed` by reason; where the rows have senses too, `accuracy`, beside
    `accuracy_majority` (of each word's most frequent sense) and the means over words. Raises
    BadInput for a folder that is no model, a row without the fields, and no row at all.
    """
    from tasks.inference.generation import load_model

    network, encoder = load_model(model)
    last = _last(layers)
    examples, failed = _read(rows, fields, network, encoder)
    vectors = _embed(network, encoder, examples, last)
    found: dict[str, Any] = {"rows": len(examples), "width": network.config.width}
    columns: dict[str, Any] = {"id": [one.id for one in examples], "vector": list(vectors)}
    if centroids is not None:
        known, missing = _read(centroids, fields, network, encoder)
        failed += Counter({f"centroids_{reason}": n for reason, n in missing.items()})
        predicted = _nearest(known, _embed(network, encoder, known, last), examples, vectors)
        columns["sense"] = predicted
        found |= _figures(known, examples, predicted)
    _write(to, columns)
    return found | {"failed": dict(failed), "to": str(to)}


def embed_texts(
    network: "Network", encoder: "Encoder", texts: Sequence[str], layers: int
) -> tuple[np.ndarray, int]:
    """The embedding of each text, [texts, width], and the tokens of all; the end of one that is
    longer than the context is left out. Raises BadInput for a text without tokens.
    """
    from tasks.tokens.frames import read_frame

    room = network.config.context - read_frame(encoder, 1, network.config.family).marks
    tokens = [encoder.encode_marked(text, [(0, len(text))])[:room] for text in texts]
    if not all(tokens):
        raise BadInput(f"text {tokens.index([])} of {len(texts)} has no tokens to embed")
    examples = [Example("", one, range(len(one)), "", None) for one in tokens]
    return _embed(network, encoder, examples, layers), sum(map(len, tokens))


def _last(layers: str) -> int:
    """How many of the last layers are meant: `last` is one, `last4` four."""
    match = re.fullmatch(r"last(\d*)", layers)
    if not match or match[1] == "0":
        raise BadInput(f"--layers {layers}: write last, or last4 for the mean of the last four")
    return int(match[1] or 1)


def _read(
    path: Path, fields: Fields, network: "Network", encoder: "Encoder"
) -> tuple[list[Example], Counter[str]]:
    """The rows of a file with what is embedded of each, and how many lack it, by reason."""
    from tasks.tokens.frames import read_frame

    frame, failed = read_frame(encoder, 1, network.config.family), Counter[str]()
    room = network.config.context - frame.marks
    found = []
    for number, row in read_row_file(path):
        text = row.get(fields.text)
        if not isinstance(text, str) or not text.strip():
            raise BadInput(f"{path}, line {number}: '{fields.text}' is {text!r}, it must be a text")
        span = _span(row, fields, text, f"{path}, line {number}")
        tokens = encoder.encode_marked(text, [(0, len(text))])
        held = [n for n, (_, a, b) in enumerate(tokens) if span and a < span[1] and b > span[0]]
        if not held or not span:
            failed["target_not_found"] += 1
            continue
        # A text that is too long is cut around its target.
        first = max(0, min(held[0] - (room - len(held)) // 2, len(tokens) - room))
        chosen = range(held[0] - first, min(held[-1] - first + 1, room))
        sense = row.get(fields.sense)
        word = text[span[0] : span[1]].lower() if fields.target else ""
        name = str(row.get("id", number))
        sense = None if sense is None else str(sense)
        found.append(Example(name, tokens[first : first + room], chosen, word, sense))
    if not found:
        raise BadInput(f"{path} has no row to embed: {dict(failed) or 'it is empty'}")
    return found, failed


def _span(row: Mapping[str, Any], fields: Fields, text: str, place: str) -> tuple[int, int] | None:
    """The characters that are embedded; None where the target is not in the text."""
    if fields.target is None:
        return 0, len(text)
    target = row.get(fields.target)
    if isinstance(target, str) and target:
        match = re.search(rf"(?<!\w){re.escape(target)}(?!\w)", text, re.IGNORECASE)
        return match.span() if match else None
    if isinstance(target, list) and len(target) == 2 and all(type(n) is int for n in target):
        return (target[0], target[1]) if 0 <= target[0] < target[1] <= len(text) else None
    raise BadInput(
        f"{place}: '{fields.target}' is {target!r}, it must be a word of the text, or a list of "
        "its first character and the one behind it"
    )


def _embed(
    network: "Network", encoder: "Encoder", examples: Sequence[Example], layers: int
) -> np.ndarray:
    """The embedding of each example, [examples, width], those of like length together."""
    import torch

    from model.encoder_decoder import EncoderDecoder
    from tasks.tokens.frames import read_frame

    stack = network.encoder if isinstance(network, EncoderDecoder) else network
    if not 1 <= layers <= len(stack.blocks):
        raise BadInput(f"--layers last{layers}: the model has {len(stack.blocks)}")
    states: list[torch.Tensor] = []
    hooks = [
        block.register_forward_hook(lambda _, __, out: states.append(stack.norm(out)))
        # Once each, as layers may be one and the same.
        for block in dict.fromkeys(list(stack.blocks)[len(stack.blocks) - layers :])
    ]
    found = np.zeros((len(examples), network.config.width), np.float32)
    frame = read_frame(encoder, 1, network.config.family)
    network.eval()
    try:
        with torch.inference_mode():
            for numbers in batches_by_length([len(one.tokens) + frame.marks for one in examples]):
                inputs, documents, chosen = _batch(frame, encoder, [examples[n] for n in numbers])
                states.clear()
                stack.run(network.embed(inputs), documents)
                mean_BTD = torch.stack(states[-layers:]).mean(0).float()
                share_BT1 = (chosen / chosen.sum(1, keepdim=True))[:, :, None]
                found[numbers] = (mean_BTD * share_BT1).sum(1).numpy()
    finally:
        for hook in hooks:
            hook.remove()
    return found


def batches_by_length(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Numbers of texts in batches of like length, the short ones first: at most `BATCH_TOKENS`
    tokens in each, padding included, but one text at least.
    """
    batch: list[int] = []
    for number in sorted(range(len(lengths)), key=lambda n: lengths[n]):
        if batch and (len(batch) + 1) * lengths[number] > BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch


def _batch(
    frame: "Frame", encoder: "Encoder", examples: Sequence[Example]
) -> "tuple[torch.Tensor, torch.Tensor, torch.Tensor]":
    """Ids, documents and, of each token, whether it is the target's; all [B, T]."""
    import torch

    rows = [frame.lay([[id_ for id_, _, _ in one.tokens]]) for one in examples]
    shape = (len(rows), max(len(row.ids) for row in rows))
    inputs = torch.full(shape, encoder.pad)
    documents, chosen = torch.zeros(shape, dtype=torch.long), torch.zeros(shape)
    for number, (row, one) in enumerate(zip(rows, examples, strict=True)):
        inputs[number, : len(row.ids)] = torch.tensor(row.ids)
        documents[number, : len(row.ids)] = 1
        start = row.starts[0]
        chosen[number, start + one.chosen.start : start + one.chosen.stop] = 1
    return inputs, documents, chosen


def _nearest(
    known: Sequence[Example],
    known_vectors: np.ndarray,
    examples: Sequence[Example],
    vectors: np.ndarray,
) -> list[str | None]:
    """The nearest sense of each example's word; None for a word of which none is known."""
    members: dict[str, dict[str, list[np.ndarray]]] = defaultdict(lambda: defaultdict(list))
    for one, vector in zip(known, known_vectors, strict=True):
        if one.sense is not None:
            members[one.word][one.sense].append(vector)
    centroids = {
        word: (sorted(senses), _unit(np.stack([np.mean(senses[s], 0) for s in sorted(senses)])))
        for word, senses in members.items()
    }
    found: list[str | None] = []
    for one, vector in zip(examples, vectors, strict=True):
        names, means_SD = centroids.get(one.word, ([], vector[None]))
        found.append(names[int((means_SD @ vector).argmax())] if names else None)
    return found


def _unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def _figures(
    known: Sequence[Example], examples: Sequence[Example], predicted: Sequence[str | None]
) -> dict[str, float]:
    """Accuracy over rows, and its mean over words, of those whose sense is known; nothing where
    none is.
    """
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for one in known:
        counts[one.word][str(one.sense)] += 1
    usual = {word: min(c, key=lambda sense, c=c: (-c[sense], sense)) for word, c in counts.items()}
    right: dict[str, list[tuple[bool, bool]]] = defaultdict(list)
    for one, sense in zip(examples, predicted, strict=True):
        if one.sense is not None:
            right[one.word].append((sense == one.sense, usual.get(one.word) == one.sense))
    if not right:
        return {}
    over_rows = np.mean([pair for pairs in right.values() for pair in pairs], 0)
    over_words = np.mean([np.mean(pairs, 0) for pairs in right.values()], 0)
    return {
        "accuracy": float(over_rows[0]),
        "accuracy_majority": float(over_rows[1]),
        "accuracy_of_words": float(over_words[0]),
        "accuracy_of_words_majority": float(over_words[1]),
    }


def _write(to: Path, columns: Mapping[str, Any]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    width = len(columns["vector"][0])
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.concatenate(columns["vector"])), width)
    half = to.with_name(f".{to.name}.{os.getpid()}")
    pq.write_table(pa.table({**columns, "vector": vectors}), half)
    half.replace(to)
