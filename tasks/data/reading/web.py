"""Web pages to text: HTML files and WARC archives, the main text found by trafilatura."""

import codecs
import re
from collections.abc import Iterator
from typing import Any

from tasks.data.reading import rows
from tasks.data.reading.decompress import ChunkFile, Entry, damaged
from tasks.data.reading.rows import BOM, Found, Record, checked, decode, show, whole

HTML_TYPES = ("text/html", "application/xhtml+xml")
DECLARED = re.compile(
    rb"""<(?:meta|\?xml)\b[^>]{0,200}?(?:charset|encoding)\s*=\s*["']?([\w.:-]+)""", re.I
)
DECLARED_WITHIN = 4096
END_OF_RECORD = b"\r\n\r\n"
OK = 200


def html_document(entry: Entry) -> Record:
    """The main text of an HTML file."""
    content = whole(entry)
    return Record(None, reason="too_large") if content is None else _page(None, content, None, None)


def warc_records(entry: Entry) -> Iterator[Found]:
    """A row for each `response` record (its page) and `conversion` record (its text), named by URL.

    The place is the record's number in the file; records of other types are no rows. Raises
    BadInput for a file that ends within a record or holds something else.
    """
    from fastwarc.warc import ArchiveIterator, WarcRecordType

    wanted = WarcRecordType.response | WarcRecordType.conversion
    stream: Any = ChunkFile(entry.chunks())
    number = 0
    try:
        for number, record in enumerate(ArchiveIterator(stream, parse_http=False), 1):
            content = record.reader.read()
            if len(content) != record.content_length:  # fastwarc takes a cut record for a short one
                raise EOFError(f"record {number} ends after {len(content)} bytes")
            if record.record_type & wanted:
                record.set_bytes_content(content)
                yield _row(number, record)
    except BaseException as error:
        # A bug in fastwarc that a hostile file finds arrives as a panic, which is no Exception.
        if isinstance(error, OSError | EOFError) or type(error).__name__ == "PanicException":
            raise damaged(entry.shown, error, f"{number} records") from error
        raise
    if stream.total and (not number or stream.last != END_OF_RECORD):
        cut = EOFError("it does not end with the end of a record")
        raise damaged(entry.shown, cut, f"{number} records")


def _row(number: int, record: Any) -> Record:
    url = (record.headers.get("WARC-Target-URI") or "").strip("<>")
    if not url:
        return Record(number, reason="missing_id", sample=show(dict(record.headers)))
    if record.content_length > rows.MAX_ROW_BYTES:
        return Record(number, id=url, reason="too_large")
    if not record.is_http:  # a conversion: text that was extracted before
        return checked(number, decode(record.reader.read().removeprefix(BOM)), url)
    record.parse_http(auto_decode="all")
    status, kind = record.http_headers.status_code, record.http_content_type
    if status != OK:
        return Record(number, id=url, reason="http_status", sample=f"{status} {url}")
    if kind not in HTML_TYPES:
        return Record(number, id=url, reason="not_html", sample=f"{kind} {url}")
    return _page(number, record.reader.read(), record.http_charset, url)


def _page(place: int | None, content: bytes, charset: str | None, url: str | None) -> Record:
    """The row of one page; `charset` is what the server said."""
    html = _decoded(content, charset)
    if html is None:
        return Record(place, id=url, reason="unknown_encoding", sample=show(content))
    if not html or html.isspace():
        return Record(place, id=url, reason="empty_text")
    try:
        text = main_text(html)
    except Exception as error:  # whatever a parser does on hostile input
        why = f"{type(error).__name__}: {error}"
        return Record(place, id=url, reason="extraction_failed", sample=show(why))
    if not text:
        return Record(place, id=url, reason="no_main_text", sample=show(html))
    return checked(place, text, url)


def main_text(html: str) -> str | None:
    """The main text of a page without navigation and comments, None where there is none."""
    from trafilatura import extract

    found: str | None = extract(html, include_comments=False, include_tables=True)
    return found


def _decoded(content: bytes, charset: str | None) -> str | None:
    """A page as text: by its byte order mark, as UTF-8, or else as it declares to be."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        charset = "utf-16"
    declared = DECLARED.search(content[:DECLARED_WITHIN])
    for name in ("utf-8-sig", charset, declared and declared[1].decode("ascii", "replace")):
        try:
            if name:
                return content.decode(_as_browsers_do(name))
        except (LookupError, UnicodeError):
            continue
    return None


def _as_browsers_do(name: str) -> str:
    """Browsers read what claims to be Latin-1 or ASCII as Windows-1252 (WHATWG, Encoding)."""
    codec = codecs.lookup(name).name
    return "cp1252" if codec in ("iso8859-1", "ascii") else codec
