"""The encoder that all stages share: text to token ids and back.

A special token is written by its id only: text that spells `<|endoftext|>` stays text.
"""

import contextlib
import hashlib
import itertools
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.artifact import Artifact
from cluster.errors import BadInput
from tasks.tokens.patterns import PATTERNS
from tasks.tokens.roles import TOKENIZER_FILES, Roles, read_roles

if TYPE_CHECKING:
    import numpy as np
    from tokenizers import Tokenizer

FILE = "tokenizer.json"
SPECIALS = ("<|endoftext|>", "<|pad|>", "<|user|>", "<|assistant|>")
"""What every tokenizer has that is trained here; objectives need more, see `special`."""
PIECE, LONGEST_PIECE, GROUP = 1 << 16, 1 << 20, 1 << 22  # characters
BYTE = re.compile("<0x([0-9A-F]{2})>")
"""How SentencePiece writes a byte that no other token has."""
# No word of a published pattern lies across such a place, so cutting there changes no token.
SAFE_CUT = re.compile(r"(?<=[^\W_])[ \n](?=[^\W\d_])")


class Encoder:
    """A `tokenizer.json` (`definition`) at work. `eod` and `pad` are the ids of the tokens that end
    a document and fill a row, `ends` those of all that end what is generated.
    """

    def __init__(self, definition: str, roles: Roles = Roles()):  # noqa: B008
        from tokenizers import Tokenizer

        self.definition, self.roles = definition, roles
        self._tokenizer = Tokenizer.from_str(definition)
        self._tokenizer.encode_special_tokens = True  # that is: as text. Not kept in the file.
        self.sha256 = hashlib.sha256(definition.encode()).hexdigest()
        # Where a word of another pattern may end is not known: a text is encoded in one piece.
        self._cut = any(json.dumps(known) in definition for known in PATTERNS.values())
        self.vocab_size: int = self._tokenizer.get_vocab_size()
        self.eod, self.pad = self._id(roles.end), self._id(roles.pad)
        self.ends = frozenset({self.eod, *roles.ends})

    def __reduce__(self) -> tuple[Any, ...]:
        return Encoder, (self.definition, self.roles)

    def _id(self, special: str) -> int:
        found: int | None = self._tokenizer.token_to_id(special)
        if found is None:
            raise BadInput(
                f"this tokenizer has no token '{special}', which is needed here; "
                "`headrace run RECIPE --rebuild tokenizer` makes one that has"
            )
        return found

    def special(self, kind: str) -> int:
        """The id of a special token by kind: `mask` is that of `<|mask|>`. BadInput without it."""
        return self._id(self.roles.kinds.get(kind) or special_token(kind))

    @cached_property
    def opening(self) -> list[int]:
        """What the tokenizer itself puts before a text, such as `<s>`; most put nothing."""
        found: list[int] = self._tokenizer.encode("").ids
        return [id_ for id_ in found if id_ != self.eod or self.roles.begin == self.roles.end]

    @property
    def separator(self) -> int:
        """What parts two texts: its separator, or the end of a document."""
        named = self.roles.kinds.get("separator") or special_token("separator")
        return self.special_tokens.get(named, self.eod)

    def template(self, texts: int) -> list[tuple[int | None, int]]:
        """What the tokenizer itself puts around one text or two: ids, None for a text, each with
        its segment.
        """
        laid = self._tokenizer.encode("a", "b" if texts > 1 else None)
        marked = zip(laid.ids, laid.type_ids, laid.sequence_ids, strict=True)
        every = [(id_ if text is None else None, segment) for id_, segment, text in marked]
        return [
            one
            for n, one in enumerate(every)
            if n == 0 or one[0] is not None or every[n - 1] != one
        ]

    @cached_property
    def begin(self) -> int | None:
        """What begins a document, where the tokenizer has such a token and puts it there itself."""
        begin = self.roles.begin and self._tokenizer.token_to_id(self.roles.begin)
        return begin if begin != self.eod and begin in self.opening else None

    @cached_property
    def ids(self) -> int:
        """One more than the highest id."""
        return max(self._tokenizer.get_vocab().values()) + 1

    @cached_property
    def special_tokens(self) -> dict[str, int]:
        """All special tokens, which stand for no text, with their ids."""
        added = self._tokenizer.get_added_tokens_decoder()
        return {token.content: index for index, token in added.items() if token.special}

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """Their ids."""
        return frozenset(self.special_tokens.values())

    def encode(self, text: str) -> list[int]:
        """The ids of a text."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, encoded by all CPUs. Memory is bounded by cutting long texts, but
        not where the tokenizer's pattern is none of those published.

        Raises BadInput for unpaired surrogates.
        """
        ids: list[list[int]] = [[] for _ in texts]
        for group in _groups(texts, self._cut):
            encoded = self._encode_pieces([piece for _, piece in group])
            for (row, _), piece_ids in zip(group, encoded, strict=True):
                ids[row].extend(piece_ids)
        return ids

    def encode_marked(
        self, text: str, typed: Sequence[tuple[int, int]]
    ) -> list[tuple[int, int, int]]:
        """The ids of a text whose special tokens count, but for the spans that are `typed`; each
        with where its text begins and ends.
        """
        found: list[tuple[int, int, int]] = []
        edges = [0, *(edge for span in typed for edge in span), len(text)]
        for number, (begin, end) in enumerate(itertools.pairwise(edges)):
            reader = self._tokenizer if number % 2 else self._marked
            encoded = reader.encode(text[begin:end], add_special_tokens=False)
            spans = ((begin + first, begin + last) for first, last in encoded.offsets)
            found += ((id_, *span) for id_, span in zip(encoded.ids, spans, strict=True))
        return found

    @cached_property
    def _marked(self) -> "Tokenizer":
        from tokenizers import Tokenizer

        return Tokenizer.from_str(self.definition)

    def _encode_pieces(self, pieces: list[str]) -> Iterator[list[int]]:
        with library_threads():
            try:
                encoded = self._tokenizer.encode_batch_fast(pieces, add_special_tokens=False)
            except TypeError as error:
                raise BadInput("text with an unpaired surrogate has no UTF-8 encoding") from error
        return (encoding.ids for encoding in encoded)

    def decode(self, ids: Sequence[int], *, specials: bool = False) -> str:
        """The text of some ids; bytes that are not UTF-8 become U+FFFD, special tokens vanish
        unless `specials`.
        """
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=not specials)
        return text

    def decode_bytes(self, ids: Sequence[int]) -> bytes:
        """The exact bytes of some ids, wherever the sequence was cut; special tokens have none."""
        return b"".join(map(self._bytes.__getitem__, ids))

    def longest(self, count: int, among: "np.ndarray | None" = None) -> list[int]:
        """The tokens that stand for most bytes, of all or `among` some ids in order."""
        import numpy as np

        lengths = np.array([len(raw) for raw in self._bytes])
        ids = np.arange(len(lengths)) if among is None else among
        found: list[int] = ids[np.argsort(-lengths[ids], kind="stable")[:count]].tolist()
        return found

    @cached_property
    def _bytes(self) -> list[bytes]:
        spelt = _letters() if '"ByteLevel"' in self.definition else _plainly
        table = [b""] * self.ids
        special = self.special_ids
        for token, index in self._tokenizer.get_vocab().items():
            if index not in special:
                table[index] = spelt(token)
        return table


def load(source: Artifact | Path) -> Encoder:
    """The encoder of an artifact or folder that has a `tokenizer.json`.

    Raises BadInput when the file is missing, damaged, not a tokenizer, or lacks a special token.
    """
    if isinstance(source, Artifact):  # the other files, too, may be elsewhere
        about = [name for name in TOKENIZER_FILES[1:] if name in source.manifest.files]
        path = [source.file(name) for name in (*about, FILE)][-1]
    else:
        path = source / FILE
    try:
        definition = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BadInput(f"{path.parent} has no {FILE}") from None
    try:
        return Encoder(definition, read_roles(path.parent))
    except BadInput:
        raise
    except Exception as error:  # the library raises bare Exception for a file it cannot parse
        raise BadInput(f"{path} is not a tokenizer: {error}") from error


def special_token(kind: str) -> str:
    """How a special token of a kind is written: `<|mask|>`."""
    return f"<|{kind}|>"


def _letters() -> Callable[[str], bytes]:
    """The bytes of a token whose letters stand for a byte each."""
    byte_of = {ord(character): byte for byte, character in enumerate(byte_characters())}
    return lambda token: token.translate(byte_of).encode("latin-1")


def _plainly(token: str) -> bytes:
    """The bytes of a token of SentencePiece or WordPiece: the latter does not say where spaces
    were, so that its bytes are those of the words alone.
    """
    if written := BYTE.fullmatch(token):
        return bytes([int(written[1], 16)])
    return token.removeprefix("##").replace("\u2581", " ").encode()


def byte_characters() -> list[str]:
    """The printable character that stands for each byte in `tokenizer.json` (GPT-2's table)."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    spare = iter(range(256, 512))
    return [chr(byte if byte in printable else next(spare)) for byte in range(256)]


def _groups(texts: Sequence[str], cut: bool) -> Iterator[list[tuple[int, str]]]:
    """(row, piece) pairs in order, in lists of a few million characters."""
    group: list[tuple[int, str]] = []
    size = 0
    for row, text in enumerate(texts):
        for piece in pieces(text) if cut else [text]:
            group.append((row, piece))
            size += len(piece)
            if size >= GROUP:
                yield group
                group, size = [], 0
    if group:
        yield group


def pieces(text: str) -> Iterator[str]:
    """A long text in pieces, cut where it changes no token; where a million characters give no
    such place, after them.
    """
    start = 0
    while len(text) - start > PIECE:
        found = SAFE_CUT.search(text, start + PIECE, start + LONGEST_PIECE)
        end = found.start() if found else start + LONGEST_PIECE
        yield text[start:end]
        start = end
    if start < len(text):
        yield text[start:]


@contextlib.contextmanager
def library_threads() -> Iterator[None]:
    """Let the library use all CPUs in this block, and no threads in a process forked after it."""
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    try:
        yield
    finally:
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
