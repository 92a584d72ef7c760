import hashlib
import itertools
import json
import random
import unicodedata
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.manifest import parents
from cluster.stage import build
from tasks.data.deduplication import candidates, phases, sets
from tasks.data.deduplication import signatures as signatures
from tasks.data.deduplication.phases import load
from tasks.data.deduplication.settings import DedupSettings
from tasks.data.deduplication.stage import dedup, earlier_artifacts
from tasks.data.text import PATTERN, read_table
from tests.data.deduplication.documents import document, edited

WEB = Path(__file__).parents[2] / "../shared/data/web"


@pytest.fixture
def run(store):
    """Deduplicate an artifact."""

    def call(artifact, force=False, **settings):
        chosen = DedupSettings(**settings)
        earlier = {"against": found} if (found := earlier_artifacts(store, chosen)) else {}
        return build(dedup, store, text=artifact, settings=chosen, force=force, **earlier)

    return call


def texts_of(artifact):
    return read_table(artifact)["text"].to_pylist()


def ids_of(artifact):
    return read_table(artifact)["id"].to_pylist()


def reasons(artifact):
    return artifact.manifest.ledger.rejects


def content(artifact):
    """What makes two artifacts the same, bit for bit."""
    return artifact.manifest.files, artifact.manifest.facts, artifact.manifest.ledger


def by_hash(texts):
    return sorted(texts, key=lambda text: hashlib.sha256(text.encode()).digest())


def a_bit_of_everything(count=60):
    base = [document(i) for i in range(count)]
    return [
        *base,
        *(edited(text, 1 + i % 9, seed=i) for i, text in enumerate(base)),
        *(text.replace(" ", "  ") for text in base[::3]),
        *("", "...", "  ", "word"),
    ]


def test_exact_duplicates_ignore_white_space_and_unicode_form(run, text_artifact):
    texts = ["a  b\n", "café", "a b", "x", unicodedata.normalize("NFD", "café"), "A b", "x"]
    out = run(text_artifact(texts), fuzzy=False)
    first = by_hash([texts[0], texts[2]])[0], by_hash([texts[1], texts[4]])[0]
    assert sorted(texts_of(out)) == sorted([*first, "x", "A b"])
    assert reasons(out) == {"exact_duplicate": 3}


@pytest.mark.parametrize("mask", [0, 1, 255])
def test_colliding_hashes_lose_nothing(run, text_artifact, monkeypatch, mask):
    honest = signatures.digests
    monkeypatch.setattr(signatures, "digests", lambda texts: honest(texts) & np.uint64(mask))
    texts = [document(i, 5) for i in range(300)] + ["", "..."]
    out = run(text_artifact(texts * 2), fuzzy=False)
    assert sorted(texts_of(out)) == sorted(t for t in texts if t)
    assert reasons(out) == {"exact_duplicate": 301}


def test_colliding_band_keys_lose_nothing(run, text_artifact, monkeypatch):
    texts = text_artifact(a_bit_of_everything())
    expected = run(texts)
    honest = signatures.band_keys
    monkeypatch.setattr(signatures, "band_keys", lambda *a: honest(*a) & np.uint64(7))
    out = run(texts, force=True)
    assert set(texts_of(out)) <= set(texts_of(expected))
    assert out.manifest.facts["near"]["pairs_skipped"] == 0
    for pair in out.manifest.facts["near"]["examples"]:
        assert pair["jaccard"] >= 0.8


def test_the_lowest_source_and_content_stays(run, read_path, tmp_path):
    base = document(1)
    family = [base, base + " and a little more", edited(base, 1)]
    others = [document(2), document(3)]
    for order in itertools.permutations(family):
        path = tmp_path / "-".join(str(family.index(t)) for t in order) / "same.jsonl"
        path.parent.mkdir()
        path.write_text("".join(json.dumps({"text": t}) + "\n" for t in [*order, *others]))
        out = run(read_path({"path": str(path), "label": "x"}))
        assert sorted(texts_of(out)) == sorted([by_hash(family)[0], *others])


def test_a_lower_source_label_goes_before_content(run, read_path, tmp_path):
    base = document(1)
    first, second = by_hash([base, edited(base, 1)])
    for label, text in (("b", first), ("a", second)):
        (tmp_path / f"{label}.jsonl").write_text(json.dumps({"text": text}))
    out = run(read_path(*({"path": str(tmp_path / f"{x}.jsonl"), "label": x} for x in ("b", "a"))))
    assert texts_of(out) == [second]


def test_pairs_below_the_threshold_stay(run, text_artifact):
    base = document(1)
    half = " ".join(base.split()[:100] + document(9).split()[:100])
    out = run(text_artifact([base, half]))
    assert out.manifest.rows == 2 and reasons(out) == {}


def test_what_is_alike_is_found_and_nothing_else(run, text_artifact):
    base = [document(i) for i in range(60)]
    texts = base + [edited(text, 1 + i % 12, seed=i) for i, text in enumerate(base)]
    shingles = [{tuple(t.split()[i : i + 5]) for i in range(196)} for t in texts]
    alike = {
        frozenset((texts[a], texts[b]))
        for a, b in itertools.combinations(range(120), 2)
        if len(shingles[a] & shingles[b]) >= 0.8 * len(shingles[a] | shingles[b])
    }
    out = run(text_artifact(texts))
    gone = set(texts) - set(texts_of(out))
    assert gone <= {text for pair in alike for text in pair}
    assert len(gone) >= 0.9 * len(alike) > 10
    near = out.manifest.facts["near"]
    assert 0.9 <= near["estimated_recall"] <= 1 and near["clusters"] == len(gone)


@pytest.mark.parametrize("rows,pairs", [(100, 5), (1000, 10)])
def test_all_planted_pairs_are_found_and_no_other(run, read_path, tmp_path, rows, pairs):
    path = WEB / f"plagiarism_articles_{rows}.train.zst"
    if not path.exists():
        pytest.skip(f"needs {path}")
    with path.open("rb") as file:
        lines = zstandard.ZstdDecompressor().stream_reader(file).read().decode().splitlines()
    articles = dict(line.split(" ", 1) for line in lines if line)
    (tmp_path / "a.jsonl").write_text(
        "".join(json.dumps({"id": i, "text": t}) + "\n" for i, t in articles.items())
    )
    out = run(read_path({"path": str(tmp_path / "a.jsonl"), "id": "id"}))
    planted = path.with_name(path.name.replace(".train.zst", ".truth")).read_text().split("\n")
    truth = [set(line.split()) for line in planted if line.strip()]
    gone = set(articles) - {name.split("/")[-1] for name in ids_of(out)}
    assert len(truth) == pairs == len(gone)
    assert all(len(pair & gone) == 1 for pair in truth)


def test_all_texts_equal_leave_one(run, text_artifact):
    out = run(text_artifact([document(1)] * 3000))
    assert out.manifest.rows == 1 and reasons(out) == {"exact_duplicate": 2999}
    out = run(text_artifact([document(1)] * 3000), exact=False)
    assert out.manifest.rows == 1 and reasons(out) == {"near_duplicate": 2999}


def test_one_giant_cluster_costs_linear_work(run, text_artifact):
    base = document(1)
    out = run(text_artifact([edited(base, 1, seed=i) for i in range(2000)]))
    near = out.manifest.facts["near"]
    assert out.manifest.rows == 1 and near["largest_cluster"] == 2000
    assert near["pairs_checked"] < 5 * 2000 and near["pairs_skipped"] == 0


def test_texts_without_words_are_never_near_duplicates(run, text_artifact):
    texts = ["...", "!!!", "a", "b", "?"]
    assert run(text_artifact(texts)).manifest.rows == 5


def test_one_document_of_ten_million_characters(run, text_artifact):
    huge = " ".join(f"w{i}" for i in range(1_300_000))
    out = run(text_artifact([huge, huge + " end", "small"]))
    assert out.manifest.rows == 2 and reasons(out) == {"near_duplicate": 1}


def test_the_stage_balances(run, text_artifact):
    base, other = document(1), document(2)
    texts = [base, other, base.replace(" ", "  "), edited(base, 1), document(3)]
    out = run(text_artifact(texts))
    assert out.manifest.ledger.identity() == {
        "rows_in": 5,
        "rows_out": 3,
        "rejects": {"exact_duplicate": 1, "near_duplicate": 1},
    }
    near = out.manifest.facts["near"]
    assert (near["clusters"], near["pairs_linked"], near["pairs_skipped"]) == (1, 1, 0)
    (pair,) = near["examples"]
    assert 0.8 <= pair["jaccard"] < 1
    assert pair["text_a"].split() == base.split()[: len(pair["text_a"].split())] or (
        pair["text_a"][:20] == base[:20]
    )
    assert [s for s, _ in near["curve"]][:2] == [0.5, 0.6]
    assert dict(map(tuple, near["curve"]))[0.8] == pytest.approx(1 - (1 - 0.8**8) ** 14, abs=1e-4)


@pytest.mark.parametrize(
    "exact,fuzzy,out", [(True, True, 2), (True, False, 3), (False, True, 2), (False, False, 4)]
)
def test_either_part_can_be_left_out(run, text_artifact, exact, fuzzy, out):
    base = document(1)
    artifact = text_artifact([base, base, edited(base, 1), document(2)])
    assert run(artifact, exact=exact, fuzzy=fuzzy).manifest.rows == out


def test_files_in_another_order_give_the_same_bytes(run, read_path, tmp_path):
    texts = a_bit_of_everything()
    parts = [texts[k::4] for k in range(4)]
    paths = []
    for number, part in enumerate(parts):
        paths.append(tmp_path / f"{number}.jsonl")
        paths[-1].write_text("".join(json.dumps({"text": t}) + "\n" for t in part))
    one = run(read_path(*paths), passage_words=20)
    two = run(read_path(*reversed(paths)), passage_words=20, force=True)
    assert one.manifest.facts["cut"][0]["count"] > 10
    assert content(one) == content(two)


def test_many_small_partitions_and_pieces_change_nothing(run, text_artifact, monkeypatch):
    artifact = text_artifact(a_bit_of_everything())
    one = run(artifact)
    monkeypatch.setattr(candidates, "PARTITION_BYTES", 4000)
    monkeypatch.setattr(sets, "SETS_BYTES", 4096)
    monkeypatch.setattr("tasks.data.deduplication.exact.PIECE_BYTES", 3000)
    monkeypatch.setattr("tasks.data.deduplication.partitions.PIECE_BYTES", 3000)
    two = run(artifact, force=True)
    assert one.manifest.files == two.manifest.files and one.manifest.ledger == two.manifest.ledger


def test_lines_stay_with_the_first_document_that_has_them(run, text_artifact):
    notice = "All rights reserved by the author of this page"
    texts = [
        f"{document(i, 30)}\n  {notice}\nshort line\n{notice}\n{document(i + 50, 9)}"
        for i in range(4)
    ]
    out = run(text_artifact([*texts, notice, "short line"]), lines=True)
    found = texts_of(out)
    assert found[0] == texts[0] and found[-1] == "short line"
    for before, after in zip(texts[1:], found[1:-1], strict=True):
        assert after == before.replace(f"  {notice}\n", "").replace(f"{notice}\n", "")
    assert reasons(out) == {"repeated_lines": 1}
    (facts,) = out.manifest.facts["cut"]
    assert (facts["kind"], facts["count"], facts["documents"]) == ("lines", 6, 3)
    assert facts["bytes"] == sum(len(t) for t in texts) - sum(len(t) for t in found[:-1])
    assert facts["samples"][0]["text"] == notice
    (none,) = run(text_artifact(texts), lines=True, line_words=50).manifest.facts["cut"]
    assert none["count"] == 0


def test_lines_in_many_ranges_are_the_same(run, text_artifact, monkeypatch):
    rng = random.Random(1)
    lines = [document(i, 9) for i in range(40)]
    texts = [document(i, 30) + "\n" + "\n".join(rng.sample(lines, 5)) for i in range(100)]
    artifact = text_artifact(texts)
    one = run(artifact, lines=True)
    monkeypatch.setattr("tasks.data.deduplication.spans.RANGE_BYTES", 1000)
    two = run(artifact, lines=True, force=True)
    assert content(one) == content(two)
    found = [line for text in texts_of(one) for line in text.split("\n") if line in lines]
    assert sorted(found) == sorted({line for text in texts for line in text.split("\n")[1:]})


def test_new_text_against_an_earlier_artifact_is_as_both_together(run, text_artifact):
    texts = a_bit_of_everything()
    random.Random(3).shuffle(texts)
    day = [texts[:50], texts[50:90], texts[90:]]
    artifacts = [text_artifact(t, f"day{i}.jsonl") for i, t in enumerate(day)]
    first = run(artifacts[0])
    second = run(artifacts[1], against=(first.name,))
    third = run(artifacts[2], against=(str(second.path), first.fingerprint[:12]))
    assert third.manifest.inputs["against"] == sorted([first.fingerprint, second.fingerprint])
    assert "against" not in third.manifest.settings["settings"]
    both = run(text_artifact([*texts_of(first), *texts_of(second), *day[2]], "both.jsonl"))
    kept = [*texts_of(first), *texts_of(second), *texts_of(third)]
    # Components are the same; who stays is decided by content there, and by age here.
    assert len(kept) == both.manifest.rows
    removed = {a["name"]: a["removed"] for a in third.manifest.facts["against"]}
    assert set(removed) == {first.name, second.name} and sum(removed.values()) > 0


def test_what_was_deduplicated_against_is_a_parent(run, store, text_artifact):
    first = run(text_artifact(["one", "two"], "a.jsonl"))
    second = run(text_artifact(["two", "three"], "b.jsonl"), against=(first.name,))
    assert first.fingerprint in parents(second.manifest)
    assert first.path in [artifact.path for artifact in store.lineage(second)]


def test_the_index_is_what_was_sketched_of_the_rows_that_stay(run, text_artifact):
    for settings in ({}, {"lines": True}, {"passage_words": 20}):
        out = run(text_artifact(a_bit_of_everything()), **settings)
        rows = np.concatenate(
            [load(f.path)["exact"].to_numpy() for f in out.files("index-*.arrow")]
        )
        text = read_table(out)["text"].combine_chunks()
        assert rows.tolist() == signatures.sign(text, None)["exact"].to_pylist()


def test_lines_of_an_earlier_artifact_are_known(run, text_artifact):
    notice = "All rights reserved by the author of this page"
    first = run(text_artifact([f"{document(1)}\n{notice}"], "a.jsonl"), lines=True)
    assert texts_of(first) == [f"{document(1)}\n{notice}"]
    second = run(
        text_artifact([f"{document(2)}\n{notice}", notice], "b.jsonl"),
        lines=True,
        against=(first.name,),
    )
    assert texts_of(second) == [f"{document(2)}\n"]
    assert reasons(second) == {"repeated_lines": 1}


def test_identity_is_what_the_earlier_artifact_holds(run, store, text_artifact):
    first = run(text_artifact(["one", "two"]))
    text = text_artifact(["two", "three"], "b.jsonl")
    names = (first.name, str(first.path), first.fingerprint)
    (print_,) = {run(text, against=(name,)).fingerprint for name in names}
    assert run(text).fingerprint != print_


def test_an_earlier_artifact_that_does_not_do_is_refused_by_name(run, text_artifact):
    text = text_artifact(["one", "two"])
    first = run(text)
    with pytest.raises(BadInput, match=r"dedup.against: no artifact named 'nothing'"):
        run(text, against=("nothing",))
    with pytest.raises(BadInput, match=rf"dedup.against: {text.name} has no index"):
        run(text, against=(text.name,))
    with pytest.raises(BadInput, match=rf"{first.name} was made with bands 14, this run has 20"):
        run(text, against=(first.name,), bands=20)


def test_a_changed_or_missing_index_is_refused_by_name(run, text_artifact):
    text = text_artifact(["one", "two"])
    first = run(text)
    index = first.path / "index-00000.arrow"
    content = index.read_bytes()
    index.write_bytes(content[:200] + bytes([content[200] ^ 1]) + content[201:])
    with pytest.raises(BadInput, match=r"index-00000.arrow: bytes 0 to .* changed"):
        run(text, against=(first.name,))
    index.unlink()
    with pytest.raises(BadInput, match=r"index-00000.arrow is missing"):
        run(text, against=(first.name,))


def test_a_stage_killed_between_any_two_steps_goes_on(run, store, text_artifact, monkeypatch):
    """Every file that a phase writes, in turn, is the last before the kill."""
    artifact = text_artifact(a_bit_of_everything())
    monkeypatch.setattr(candidates, "PARTITION_BYTES", 20000)
    clean = run(artifact, lines=True, passage_words=20)
    honest, written = phases.save, []

    class Kill(BaseException):
        pass

    def save(path, table):
        if written and written[-1] == "kill":
            raise Kill
        honest(path, table)
        written.append("kill")

    monkeypatch.setattr(phases, "save", save)
    kills = 0
    while True:
        written.clear()
        try:
            again = run(artifact, lines=True, passage_words=20, force=True)
            break
        except Kill:
            kills += 1
    assert kills > 6
    assert content(again) == content(clean)
    assert not list(store.root.glob("work/*"))


def test_a_full_disk_is_named_and_what_is_finished_is_kept(run, text_artifact, monkeypatch):
    artifact = text_artifact(a_bit_of_everything())
    clean = run(artifact)
    honest, full = phases.save, ["packed"]

    def save(path, table):
        if path.parent.parent.name in full:
            path.write_bytes(b"half")
            raise OSError(28, "No space left on device")
        honest(path, table)

    monkeypatch.setattr(phases, "save", save)
    with pytest.raises(BadInput, match=r"no space left in .*work/dedup-.*/packed, .* bytes more"):
        run(artifact, force=True)
    full.clear()
    monkeypatch.setattr(signatures, "sign", None)  # would fail if it were done again
    assert content(run(artifact, force=True)) == content(clean)


def test_damaged_text_is_refused_with_its_file(run, text_artifact):
    text = text_artifact(a_bit_of_everything())
    path = text.files(PATTERN)[0].path
    content = bytearray(path.read_bytes())
    content[300] ^= 1
    path.write_bytes(content)
    with pytest.raises(BadInput, match=str(path)):
        run(Artifact.load(text.path))


def copies_of(artifact):
    tables = [pq.read_table(file.path) for file in artifact.files("rejects-*.parquet")]
    return dict(
        zip(*(pa.concat_tables(tables)[c].to_pylist() for c in ("id", "copy_of")), strict=True)
    )


def test_a_reject_names_the_document_that_stays_for_it(run, text_artifact):
    first, other, third = (document(seed) for seed in (1, 2, 3))
    near = edited(other, 3)
    texts = [first, other, f" {first}", near, f" {near} ", third]
    artifact = text_artifact(texts)
    groups = {"texts.jsonl:1": "a", "texts.jsonl:3": "a", "texts.jsonl:6": "c"}
    out = run(artifact)
    found = copies_of(out)
    assert reasons(out) == {"exact_duplicate": 2, "near_duplicate": 1} and len(found) == 3
    assert set(found.values()) <= set(ids_of(out))
    for gone, stays in found.items():
        assert groups.get(gone) == groups.get(stays)
    assert copies_of(run(text_artifact([first, third], "new.jsonl"))) == {}
    later = run(text_artifact([document(7), first], "later.jsonl"), against=(str(out.path),))
    (original,) = [id for id in ids_of(out) if groups.get(id) == "a"]
    assert copies_of(later) == {"later.jsonl:2": original}


def test_text_of_which_nothing_is_left_is_no_copy(run, text_artifact):
    line = "the same line stands in both of these documents here"
    out = run(text_artifact([f"{line}\n{document(1)}", line]), lines=True, fuzzy=False)
    assert reasons(out) == {"repeated_lines": 1}
    assert copies_of(out) in ({"texts.jsonl:2": None}, {"texts.jsonl:1": None})
