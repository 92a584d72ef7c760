"""Find and replace personal data in batches of Arrow text, without a copy of what stays as it is.

The native pass (prefilter/) marks places; a small window around each is decoded, read in its plain
spelling, and shown to the exact finders of the kind. What they find is what `pii.find` finds in the
whole text.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter

import numpy as np
import pyarrow as pa

from tasks.data.kernels.buffers import Bytes, text_array, text_buffer
from tasks.data.privacy.credentials import PEM_CHARS
from tasks.data.privacy.obfuscation import fold
from tasks.data.privacy.phones import phones
from tasks.data.privacy.pii import FINDERS, Finder
from tasks.data.privacy.prefilter.marks import PREFILTERS
from tasks.data.privacy.prefilter.scan import scan
from tasks.data.privacy.spans import Span, settle

# No finder looks further than this from a mark; in other spellings a character takes more bytes.
MARGIN, WIDE_MARGIN = 320, 1600
Found = dict[int, list[Span]]


def find_all(texts: pa.Array, kinds: Iterable[str], regions: Sequence[str] = ()) -> Found:
    """The instances in each text that has any, as spans of UTF-8 bytes, settled."""
    data, offsets = text_buffer(texts)
    finders = _finders(kinds, tuple(regions))
    wanted = sum(1 << prefilter for prefilter in finders)
    marks = scan(data, offsets, wanted)
    found: Found = {}
    for text, group in groupby(marks.tolist(), itemgetter(0)):
        begin, end = int(offsets[text]), int(offsets[text + 1])
        # A set: the windows of neighbouring marks find the same instance.
        spans = {
            Span(first - begin, last - begin, finders[prefilter][0])
            for _, lo, hi, prefilter in group
            for first, last in _look(data, begin, end, lo, hi, finders[prefilter][1], prefilter)
        }
        if spans:
            found[text] = settle(spans)
    return found


def add_spans(texts: pa.Array, found: Found, more: Iterable[Sequence[Span]]) -> Found:
    """The instances found, and those of a model (characters, by text), settled together."""
    both: Found = {}
    for text, (value, spans) in enumerate(zip(texts.to_pylist(), more, strict=True)):
        said = [
            Span(len(value[:start].encode()), len(value[:end].encode()), kind)
            for start, end, kind in spans
        ]
        if together := [*found.get(text, ()), *said]:
            both[text] = settle(together)
    return both


def char_spans(text: str, spans: Iterable[Span]) -> list[Span]:
    """Spans of bytes as spans of characters."""
    raw = text.encode()
    return [
        Span(len(raw[:start].decode()), len(raw[:end].decode()), kind) for start, end, kind in spans
    ]


def _finders(kinds: Iterable[str], regions: tuple[str, ...]) -> dict[int, tuple[str, Finder]]:
    """Kind and finder by the number of their prefilter."""
    finders: dict[int, tuple[str, Finder]] = {}
    for kind in kinds:
        # Each kind has one finder and a prefilter of its name, but `secret`, which has two.
        for finder, prefilter in zip(FINDERS.get(kind, ()), (kind, "private_key"), strict=False):
            if finder is phones and regions:
                finder = partial(phones, regions=regions)
            finders[PREFILTERS.index(prefilter)] = kind, finder
    return finders


def _look(
    data: Bytes, begin: int, end: int, lo: int, hi: int, finder: Finder, prefilter: int
) -> list[tuple[int, int]]:
    """What a finder finds at bytes `lo` to `hi` of a text at `begin` to `end`, as bytes."""
    ahead = PEM_CHARS if PREFILTERS[prefilter] == "private_key" else 0
    first, last = max(begin, lo - MARGIN), min(end, hi + MARGIN + ahead)
    raw = data[first:last].tobytes()
    if raw.isascii() and b"&" not in raw:
        found = finder(raw.decode("ascii"), lo - first, hi - first)
        return [(first + a, first + b) for a, b in found]
    return _look_wide(data, begin, end, lo, hi, finder, WIDE_MARGIN + 4 * ahead)


def _look_wide(
    data: Bytes, begin: int, end: int, lo: int, hi: int, finder: Finder, margin: int
) -> list[tuple[int, int]]:
    """The same where characters take several bytes, or stand for others."""
    first, last = max(begin, lo - WIDE_MARGIN), min(end, hi + margin)
    # A window that began or ended within a character could not be decoded.
    while first > begin and data[first] & 0xC0 == 0x80:
        first -= 1
    while last < end and data[last] & 0xC0 == 0x80:
        last += 1
    raw = data[first:last].tobytes()
    window = raw.decode()
    plain = fold(window)
    at, to = (plain.place(len(raw[: place - first].decode())) for place in (lo, hi))
    spans = [plain.unfold(a, b) for a, b in finder(plain.text, at, to)]
    return [(first + len(window[:a].encode()), first + len(window[:b].encode())) for a, b in spans]


def replace_all(texts: pa.Array, found: Found, replacement: Callable[[str, str], str]) -> pa.Array:
    """The texts with each span replaced by `replacement(kind, value)`; the same array for none."""
    if not found:
        return texts
    data, offsets = text_buffer(texts)
    # What stays is passed on as views and copied once, when all is joined.
    view = memoryview(data)  # pyrefly: ignore[bad-argument-type]
    parts: list[bytes | memoryview] = []
    growth = np.zeros(len(offsets), np.int64)
    done = int(offsets[0])
    for text, spans in found.items():
        begin = int(offsets[text])
        for span in spans:
            start, end = begin + span.start, begin + span.end
            new = replacement(span.kind, bytes(view[start:end]).decode()).encode()
            parts += [view[done:start], new]
            growth[text + 1] += len(new) - (end - start)
            done = end
    parts.append(view[done : int(offsets[-1])])
    replaced = np.frombuffer(b"".join(parts), np.uint8)
    return text_array(replaced, offsets - offsets[0] + np.cumsum(growth))
