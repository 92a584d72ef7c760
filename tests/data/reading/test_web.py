import gzip
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from cluster.errors import BadInput
from tasks.data.text import read_table

BODY = "The mill stands by the river, and its wheel has turned for three hundred years. "
PAGE = (
    "<html><head><title>The mill</title>{meta}</head><body><nav><a href='/'>Home</a></nav>"
    "<article><h1>The mill</h1><p>{body}</p></article>"
    "<footer>Copyright nobody</footer></body></html>"
)
CRAWL = Path(__file__).parents[4] / "shared/data/web/dolma_warc_samples.tar"


def page(body=BODY * 3, meta=""):
    return PAGE.format(body=body, meta=meta)


def warc(*records):
    """A WARC file of (type, url, content) records."""
    parts = []
    for number, (kind, url, content) in enumerate(records):
        http = "application/http; msgtype=response"
        lines = [
            "WARC/1.0",
            f"WARC-Type: {kind}",
            f"WARC-Record-ID: <urn:uuid:{number:032x}>",
            "WARC-Date: 2026-01-01T00:00:00Z",
            *([f"WARC-Target-URI: {url}"] if url else []),
            f"Content-Type: {http if kind == 'response' else 'text/plain'}",
            f"Content-Length: {len(content)}",
        ]
        parts.append("\r\n".join(lines).encode() + b"\r\n\r\n" + content + b"\r\n\r\n")
    return b"".join(parts)


def http(body, status="200 OK", kind="text/html; charset=utf-8", more=""):
    return f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n{more}\r\n".encode() + body


def rejects(artifact):
    rows = pq.read_table(artifact.file("rejects-00000.parquet")).to_pylist()
    return {row["id"]: row["reason"] for row in rows}


def test_the_main_text_of_a_page_without_its_navigation(tmp_path, read_path):
    (tmp_path / "a.html").write_text(page())
    (text,) = read_table(read_path(tmp_path / "a.html"))["text"].to_pylist()
    assert text.count("The mill stands by the river") == 3
    assert "Home" not in text and "Copyright" not in text and "<" not in text


def test_a_page_is_decoded_as_it_declares(tmp_path, read_path):
    accented = "Le café près de l'hôtel a été très agréable, paraît-il, même l'été. " * 3
    meta = '<meta charset="iso-8859-1">'
    for name, content in {
        "utf8.html": page(accented).encode(),
        "latin.html": page(accented, meta).encode("cp1252"),
        "utf16.html": page(accented).encode("utf-16"),
    }.items():
        (tmp_path / name).write_bytes(content)
        (text,) = read_table(read_path(tmp_path / name))["text"].to_pylist()
        assert accented.strip() in text
    (tmp_path / "none.html").write_bytes(page(accented).encode("cp1252"))
    artifact = read_path(str(tmp_path / "*.html"), max_bad_rate=0.5)
    assert list(rejects(artifact).values()) == ["unknown_encoding"]


def test_a_page_without_text_and_a_failing_extractor_are_reasons(tmp_path, read_path, monkeypatch):
    (tmp_path / "a.html").write_text("<html><body><script>run()</script></body></html>")
    (tmp_path / "b.html").write_text(page("broken " * 30))
    (tmp_path / "c.html").write_text(page())
    (tmp_path / "d.html").write_text("  \n")
    from trafilatura import extract

    def fails(html, **options):
        if "broken" in html:
            raise RecursionError("too deep")
        return extract(html, **options)

    monkeypatch.setattr("trafilatura.extract", fails)
    artifact = read_path(str(tmp_path / "*.html"), max_bad_rate=0.5)
    assert artifact.manifest.ledger.rejects == {
        "empty_text": 1,
        "extraction_failed": 1,
        "no_main_text": 1,
    }
    assert artifact.manifest.rows == 1
    assert artifact.manifest.facts["sources"][0]["bad_rows"] == 1


RECORDS = [
    ("warcinfo", "", b"software: none"),
    ("request", "http://a.example/", b"GET / HTTP/1.1\r\n\r\n"),
    ("response", "http://a.example/", http(page().encode())),
    ("response", "http://a.example/missing", http(page().encode(), "404 Not Found")),
    ("response", "http://a.example/x.png", http(b"\x89PNG", kind="image/png")),
    ("response", "<http://a.example/zipped>", http(
        gzip.compress(page().encode()), more="Content-Encoding: gzip\r\n")),
    ("conversion", "http://a.example/plain", b"Text that was extracted before."),
    ("response", "http://a.example/", http(page().encode())),
]  # fmt: skip


@pytest.mark.parametrize("name", ["a.warc", "a.warc.gz"])
def test_responses_of_a_warc_are_rows_named_by_url(tmp_path, read_path, name):
    content = warc(*RECORDS)
    if name.endswith(".gz"):  # a member for each record, as crawlers write them
        content = b"".join(gzip.compress(warc(record)) for record in RECORDS)
    (tmp_path / name).write_bytes(content)
    artifact = read_path(tmp_path / name)
    table = read_table(artifact)
    assert table["id"].to_pylist() == [
        f"{name}/http://a.example/",
        f"{name}/http://a.example/zipped",
        f"{name}/http://a.example/plain",
        f"{name}/http://a.example/@8",
    ]
    assert table["origin"].to_pylist() == [f"{name}:{n}" for n in (3, 6, 7, 8)]
    assert table["text"][0].as_py() == table["text"][3].as_py()
    assert table["text"][2].as_py() == "Text that was extracted before."
    assert rejects(artifact) == {
        f"{name}/http://a.example/missing": "http_status",
        f"{name}/http://a.example/x.png": "not_html",
    }
    assert artifact.manifest.facts["sources"][0]["bad_rows"] == 0


def test_a_cut_warc_is_refused_by_name(tmp_path, read_path):
    whole = warc(*RECORDS)
    for cut in (len(whole) - 1, len(whole) - 300, whole.rindex(b"WARC/1.0") + 30):
        (tmp_path / "a.warc").write_bytes(whole[:cut])
        with pytest.raises(BadInput, match=r"a\.warc is damaged: .* after \d+ records"):
            read_path(tmp_path / "a.warc")
    (tmp_path / "a.warc").write_bytes(b"no records at all\n" * 100)
    with pytest.raises(BadInput, match=r"a\.warc is damaged"):
        read_path(tmp_path / "a.warc")


@pytest.mark.skipif(not CRAWL.exists(), reason="the shared folder with real data is absent")
def test_a_real_crawl(read_path):
    artifact = read_path(CRAWL)
    table = read_table(artifact)
    assert artifact.manifest.ledger.rows_in == 37
    assert all("://" in id for id in table["id"].to_pylist())
    assert min(len(text) for text in table["text"].to_pylist()) > 20
