"""Batches of text to token ids by gigatoken: many times faster than `tokenizers`, the same ids.

One call encodes a whole batch: its documents are joined by NUL, which no text has, and NUL is given
to the engine as the one special token there is, with the id of the end-of-document token. So the
ids come back flat, each document ended, and a special token spelt in a text stays text.
"""

import json
import logging
from functools import lru_cache
from importlib.metadata import version
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tasks.tokens.encoder import LONGEST_PIECE, PIECE, SAFE_CUT, SPECIALS, Encoder, pieces

NUL = "\0"
SAMPLE = 1024  # characters
log = logging.getLogger("headrace.shards")


class Disagreement(Exception):
    """The engine gave other ids than `tokenizers`."""


class NativeEncoder:
    """The engine for one tokenizer, in which `end` ends a document. Raises ValueError with the
    reason where it cannot take over.
    """

    def __init__(self, definition: str, end: str = SPECIALS[0]):
        try:
            import gigatoken
        except ImportError as error:
            raise ValueError(f"gigatoken cannot be imported: {error}") from error
        content = json.loads(definition)
        if content["model"]["type"] != "BPE":
            raise ValueError(f"gigatoken has no {content['model']['type']}")
        self.name = f"gigatoken {version('gigatoken')}"
        special = {token["content"]: token for token in content["added_tokens"]}
        if end not in special:
            raise ValueError(f"{end}, which ends a document, is not among its special tokens")
        content["added_tokens"] = [{**special[end], "content": NUL, "special": True}]
        for token in special:
            content["model"]["vocab"].pop(token, None)
        self._end = special[end]["id"]
        try:
            self._engine = gigatoken.Tokenizer.from_json(json.dumps(content)).backend
        except Exception as error:  # the library raises its own kinds for what it does not support
            raise ValueError(f"gigatoken does not take this tokenizer: {error}") from error

    def encode(self, texts: pa.Array) -> np.ndarray | None:
        """The ids of all texts, an end-of-document token after each; None for what `tokenizers`
        must encode: a text with a NUL, or one so long that `Encoder` cuts it at any place.
        """
        if any(map(_cut_anywhere, texts.filter(_long(texts)).to_pylist())):
            return None
        joined = pc.binary_join_element_wise(texts, *(_large(part) for part in ("", NUL)))
        ids: np.ndarray = self._engine.encode(joined.buffers()[2].to_pybytes())
        return ids if np.count_nonzero(ids == self._end) == len(texts) else None


@lru_cache(maxsize=1)
def native(definition: str, end: str = SPECIALS[0]) -> NativeEncoder | None:
    """The engine for a tokenizer, kept for the next block; None, with the reason logged."""
    try:
        return NativeEncoder(definition, end)
    except ValueError as reason:
        log.info("encoding with `tokenizers`: %s", reason)
        return None


def encode_batch(encoder: Encoder, engine: NativeEncoder | None, texts: pa.Array) -> np.ndarray:
    """The ids [tokens] of a batch, an end-of-document token after each text, and before it the one
    that begins a document where the tokenizer has such.

    A stretch of one text is encoded by `tokenizers` as well. Raises Disagreement when it differs.
    """
    if engine and (ids := engine.encode(texts)) is not None:
        _check(encoder, texts, ids)
    else:
        lists = encoder.encode_batch(texts.to_pylist())
        ids = np.concatenate([np.array([*ids, encoder.eod], np.uint32) for ids in lists])
    if encoder.begin is None:
        return ids
    return np.insert(ids, np.r_[0, np.flatnonzero(ids == encoder.eod)[:-1] + 1], encoder.begin)


def _check(encoder: Encoder, texts: pa.Array, ids: np.ndarray) -> None:
    row = len(texts) // 2
    text = texts[row].as_py()
    cut = SAFE_CUT.search(text, SAMPLE, PIECE)
    if not cut and len(text) > PIECE:
        return
    want: Any = encoder.encode(text[: cut.start()] if cut else text)
    begin = np.flatnonzero(ids == encoder.eod)[row - 1] + 1 if row else 0
    if ids[begin : begin + len(want)].tolist() != want:
        raise Disagreement(f"on the text that begins {text[:40]!r}")


def _long(texts: pa.Array) -> pa.Array:
    return pc.greater(pc.binary_length(texts), LONGEST_PIECE)


def _cut_anywhere(text: str) -> bool:
    return any(len(piece) >= LONGEST_PIECE for piece in pieces(text))


def _large(text: str) -> pa.Scalar:
    return pa.scalar(text, pa.large_string())
