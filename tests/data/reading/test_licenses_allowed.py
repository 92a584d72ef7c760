"""`sources[].licenses`: rows of other licences are left out, and counted."""

import json

import pytest

from cluster.errors import BadInput
from cluster.stage import build
from cluster.store import Store
from tasks.data.reading.settings import SourceSettings
from tasks.data.reading.stage import ReadSettings, read
from tasks.data.text import read_table

ROWS = {"a": "MIT", "b": "GPL-3.0", "c": None, "d": "mit, Apache-2.0", "e": "MIT, GPL-3.0"}


def taken(tmp_path, **rules):
    path = tmp_path / "rows.jsonl"
    rows = ({"id": id, "text": f"text {id}", "license": name} for id, name in ROWS.items())
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = SourceSettings.model_validate(
        {"path": str(path), "id": "id", "license_field": "license", "licenses": rules}
    )
    made = build(read, Store(tmp_path / "store"), settings=ReadSettings(sources=(source,)))
    ids = [id.rpartition("/")[2] for id in read_table(made, ["id"])["id"].to_pylist()]
    return ids, made.manifest


@pytest.mark.parametrize(
    ("rules", "kept", "rejects"),
    [
        ({"allow": ["mit", "apache-2.0"]}, "ad", {"license_not_allowed": 3}),
        ({"deny": ["GPL-3.0"]}, "acd", {"license_denied": 2}),
        ({"allow": ["MIT", "unknown"], "deny": ["unknown"]}, "a", None),
        ({}, "abcde", {}),
    ],
)
def test_rows_of_other_licences_are_left_out(tmp_path, rules, kept, rejects):
    ids, about = taken(tmp_path, **rules)
    assert ids == list(kept)
    assert rejects is None or about.ledger.rejects == rejects
    assert sum(about.facts["sources"][0]["licenses"].values()) == len(kept)
    for samples in about.facts["samples"].values():
        assert all(sample["text"] == "" for sample in samples)


def test_a_rule_that_leaves_nothing_is_refused(tmp_path):
    with pytest.raises(BadInput, match="license_not_allowed 5"):
        taken(tmp_path, allow=["CC0-1.0"])
