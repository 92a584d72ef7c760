"""What the report and `--inspect` show of removed, kept and nearly equal documents."""

from pathlib import Path

from cluster.artifact import Artifact
from cluster.manifest import Ledger
from cluster.store import Spec, Store
from flows.views.output import Output
from flows.views.samples import inspect, show_inspection
from tasks.report.page import render


def filtered(store, **facts):
    spec = Spec("filter", 1, "test", {}, {})
    with store.draft(spec) as draft:
        draft.facts |= facts
        (draft.path / "data.txt").write_text("x")
        draft.ledger = Ledger(**{"in": 9, "out": 6, "rejects": {"few_words": 1, "too_short": 2}})
        draft.facts["samples"] = {
            "too_short": [{"id": "a:1", "origin": "a:1", "text": "[red]tiny"}],
            "few_words": [{"id": "a:2", "origin": "a:2", "text": "so\nfew"}],
        }
        draft.facts["kept"] = [{"id": "a:3", "origin": "a:3", "text": "long enough"}]
        draft.facts["lines_removed"] = {"line_policy": 4}
    return {"stages": [{"artifact": str(store.folder(spec))}, {"artifact": None}]}


def test_removed_samples_stand_beside_kept_ones(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    (stage,) = inspect(filtered(Store(tmp_path)))
    assert (stage["stage"], stage["rows_in"], stage["rows_out"]) == ("filter", 9, 6)
    assert [(g["reason"], g["rows"]) for g in stage["removed"]] == [
        ("too_short", 2),
        ("few_words", 1),
    ]
    show_inspection(Output(as_json=False), [stage])
    printed = capsys.readouterr().out
    assert "filter: 9 rows in, 6 out" in printed
    assert "line_policy: 4 lines taken out of kept rows" in printed
    beside = next(line for line in printed.splitlines() if "[too_short]" in line)
    assert "a:3" in beside  # a sample of what was kept, on the same line
    assert "[red]tiny" in printed  # text is text, not markup


def test_json_is_silent_for_people(tmp_path, capsys):
    show_inspection(Output(as_json=True), inspect(filtered(Store(tmp_path))))
    assert capsys.readouterr().out == ""


def test_near_duplicates_and_lines_are_shown_to_people_and_in_the_report(tmp_path, capsys):
    pair = {"a": "x:1", "b": "x:2", "jaccard": 0.875, "text_a": "one <b>", "text_b": "one two"}
    lines = {"count": 1234, "documents": 7, "bytes": 9000, "samples": [{"id": "i", "text": "(c)"}]}
    cut = [lines | {"kind": "lines"}]
    record = filtered(Store(tmp_path), near={"examples": [pair]}, cut=cut)
    show_inspection(Output(as_json=False), inspect(record))
    printed = capsys.readouterr().out
    assert "1,234 lines of 7 documents cut" in printed
    beside = next(line for line in printed.splitlines() if "x:1, Jaccard 0.875" in line)
    assert "x:2" in beside
    page = render([Artifact.load(Path(record["stages"][0]["artifact"]))], "mine")
    assert "<pre>one &lt;b&gt;</pre>" in page and "<pre>one two</pre>" in page
    assert "1,234 lines" in page and "<code>(c)</code>" in page
