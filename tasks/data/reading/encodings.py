"""The bytes of a text file as UTF-8 with lines that end in LF, whatever they were."""

import codecs
import itertools
from collections.abc import Iterable, Iterator

HEAD_BYTES = 1 << 20
AUTO = "auto"
ASIDE = "headrace.aside"


def _aside(error: UnicodeError) -> tuple[str, int]:
    """Bytes that are none of the encoding become one that is no UTF-8: their row is set aside."""
    assert isinstance(error, UnicodeDecodeError)
    return "\udcff" * (error.end - error.start), error.end


codecs.register_error(ASIDE, _aside)


def as_utf8(chunks: Iterable[bytes], encoding: str | None) -> Iterator[bytes]:
    """The content in UTF-8: from an encoding, from the one it seems to be in (`auto`), or as it is.

    CR becomes LF where the first MiB of a file has it alone, as on old Macintoshes.
    """
    chunks = iter(chunks)
    if encoding == AUTO:
        head, chunks = _head(chunks, b"")
        encoding = detected(head)
    if encoding is not None and codecs.lookup(encoding).name != "utf-8":
        chunks = _decoded(chunks, encoding)
    head, chunks = _head(chunks, b"\n")
    old = b"\r" in head and b"\n" not in head
    return (chunk.replace(b"\r", b"\n") for chunk in chunks) if old else chunks


def detected(head: bytes) -> str | None:
    """The encoding of the beginning of a file; None for UTF-8, and where none fits."""
    from charset_normalizer import from_bytes

    try:
        # That a character is cut at the end is no fault.
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        found = from_bytes(head).best()
        return found.encoding if found else None
    return None


def _decoded(chunks: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)(ASIDE)
    for chunk in itertools.chain(chunks, [b""]):
        text = decoder.decode(chunk, final=not chunk)
        if content := text.encode(errors="surrogateescape"):
            yield content


def _head(chunks: Iterator[bytes], until: bytes) -> tuple[bytes, Iterator[bytes]]:
    """The first MiB or so, or less that has the mark, but no half of a CR LF; and all chunks."""
    taken, size = list[bytes](), 0
    for chunk in chunks:
        taken.append(chunk)
        size += len(chunk)
        if (until and until in chunk) or (size >= HEAD_BYTES and not chunk.endswith(b"\r")):
            break
    return b"".join(taken), itertools.chain(taken, chunks)
