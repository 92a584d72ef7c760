"""How precision and recall are counted, and what the package's own sentences give."""

import json
from pathlib import Path

import pytest

from cluster.errors import BadInput
from tasks.data.privacy.pii import DEFAULT_KINDS, find
from tasks.data.privacy.quality import OWN, Labelled, measure, read_labelled
from tasks.data.privacy.spans import Span

PII = Path(__file__).parents[4] / "shared/data/pii"


def test_found_is_covered_and_right_is_touched():
    text = "abcd efgh"
    labelled = [Labelled(text, [Span(0, 9, "card"), Span(0, 4, "ip")])]
    made = [Span(0, 4, "card"), Span(5, 8, "ip")]
    card, ip = measure(labelled, lambda _: made, ("card", "ip"))
    assert card == ("card", 1, 0, 1, 1)  # its last letter stays
    assert ip == ("ip", 1, 1, 1, 0)  # gone, under another kind; the redaction touches no address
    assert (card.recall, card.precision) == (0, 1)
    assert measure([], lambda _: [], ("email",))[0].recall is None


def test_our_sentences_are_found():
    kinds = DEFAULT_KINDS
    for row in measure(read_labelled(OWN), lambda text: find(text, kinds), kinds):
        assert row.instances >= 10, row
        assert row.found == row.instances, row
        assert row.right == row.redactions, row


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"text": "a", "spans": [{"start": 0, "end": 9, "kind": "email"}]}', "no span"),
        ('{"text": "a", "spans": [{"start": 0, "end": 1, "kind": "mail"}]}', "no span"),
        ('{"text": "a"}', "KeyError"),
        ("nonsense", "is not JSON"),
    ],
)
def test_a_row_that_is_none_is_named(tmp_path, line, reason):
    path = tmp_path / "l.jsonl"
    path.write_text(f"\n{line}\n")
    with pytest.raises(BadInput, match=rf"l\.jsonl, line 2.* {reason}"):
        read_labelled(path)


def test_presidios_own_form_is_read(tmp_path):
    path = tmp_path / "p.json"
    spans = [
        {"entity_type": kind, "entity_value": "x", "start_position": 0, "end_position": 4}
        for kind in ("PERSON", "GPE")
    ]
    path.write_text(json.dumps([{"full_text": "Jane", "spans": spans}]))
    assert read_labelled(path) == [Labelled("Jane", [Span(0, 4, "name")])]
    path.write_text('[{"full_text": "Jane"}]')
    with pytest.raises(BadInput, match=r"p\.json, entry 1: KeyError"):
        read_labelled(path)


@pytest.mark.skipif(not PII.is_dir(), reason="the folder of real data is absent")
def test_presidio_sentences_are_found():
    rows = [row for path in sorted(PII.glob("*.json.zst")) for row in read_labelled(path)]
    for row in measure(rows, find, ("email", "ip", "card", "iban", "phone", "national_id")):
        assert row.recall >= 0.98, row
        assert row.precision >= (0.95 if row.kind == "phone" else 0.98), row
