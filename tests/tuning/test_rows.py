"""Rows: reading JSON lines, errors that name the row, splits that no group straddles."""

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.errors import BadInput
from tasks.tuning.classify.settings import ClassifySettings
from tasks.tuning.rows import Pair, Snippet, read_pairs, split, split_each_class
from tasks.tuning.rows import read_snippets as read_rows
from tasks.tuning.sources import labelled_rows
from tasks.tuning.text_to_text.rows import read_text_pairs
from tasks.tuning.text_to_text.settings import PairsSettings


def read_snippets(path: Path) -> list[Snippet]:
    return read_rows(path, "text", "label")


def write(path: Path, rows: list[object]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_snippets_are_read_and_equal_texts_share_a_group(tmp_path: Path) -> None:
    rows = [{"text": "a cat", "label": "x"}, {"text": "a dog", "label": 1}]
    found = read_snippets(write(tmp_path / "rows.jsonl", [*rows, rows[0]]))
    assert sorted((row.text, row.label) for row in found) == [
        ("a cat", "x"),
        ("a cat", "x"),
        ("a dog", "1"),
    ]
    assert len({row.group for row in found}) == 2


def test_tables_without_a_header_and_with_quotes_in_texts_are_read_as_settings_say(
    tmp_path: Path,
) -> None:
    table = tmp_path / "sms.tsv"
    table.write_text('ham\tone, two\nspam\t"win\nham\tthree\nspam\tfour\n')
    told: dict[str, Any] = {"data": str(table), "quotes": False}
    labelled = ClassifySettings(**told, header=("label", "text"))
    train, heldout, _ = labelled_rows(labelled)
    found = {(row.text, row.label) for row in train + heldout}
    assert found == {("one, two", "ham"), ('"win', "spam"), ("three", "ham"), ("four", "spam")}
    pairs = PairsSettings(**told, header=("source", "target"))
    read = read_text_pairs(pairs, pairs.data, Counter())
    assert ("spam", ('"win',)) in {(row.source, row.targets) for row in read}
    with pytest.raises(BadInput, match="`quotes: false`"):
        labelled_rows(labelled.model_copy(update={"quotes": True}))


def test_compressed_rows_are_read_alike(tmp_path: Path) -> None:
    plain = write(tmp_path / "rows.jsonl", [{"text": "a cat", "label": "x"}])
    packed = tmp_path / "rows.jsonl.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert read_snippets(packed) == read_snippets(plain)


def test_the_order_of_rows_does_not_depend_on_the_file(tmp_path: Path) -> None:
    rows: list[object] = [{"text": f"text {i}", "label": "x"} for i in range(20)]
    forward = read_snippets(write(tmp_path / "a.jsonl", rows))
    assert forward == read_snippets(write(tmp_path / "b.jsonl", rows[::-1]))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"text": "a"}, "line 2 has no 'label'; it has text"),
        ({"label": "x"}, "line 2 has no 'text'; it has label"),
        ({"text": " ", "label": "x"}, "line 2: 'text' is ' '"),
        ({"text": 3, "label": "x"}, "line 2: 'text' is 3"),
        (["a"], "line 2 is not a JSON object"),
    ],
)
def test_a_bad_labelled_row_is_named(tmp_path: Path, row: object, message: str) -> None:
    path = write(tmp_path / "rows.jsonl", [{"text": "fine", "label": "x"}, row])
    with pytest.raises(BadInput) as error:
        read_snippets(path)
    assert message in str(error.value)


def test_a_cut_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"text": "a", "label": "x"}\n{"text": "b", "la')
    with pytest.raises(BadInput, match="line 2 is not JSON"):
        read_snippets(tmp_path / "rows.jsonl")


def test_pairs_take_other_names_and_append_the_input(tmp_path: Path) -> None:
    row = {"prompt": "Add.", "input": "1 2", "output": "3", "context": "sums", "id": "s1"}
    (pair,) = read_pairs(write(tmp_path / "rows.jsonl", [row]))
    assert pair.record() == {
        "id": "s1",
        "instruction": "Add.\n\n1 2",
        "response": "3",
        "context": "sums",
    }
    assert pair.number == 1


def test_what_dolly_asks_about_is_part_of_the_question(tmp_path: Path) -> None:
    row = {"instruction": "Who?", "context": "Ada wrote.", "response": "Ada", "category": "qa"}
    (pair,) = read_pairs(write(tmp_path / "rows.jsonl", [row]))
    assert (pair.instruction, pair.context) == ("Who?\n\nAda wrote.", "Ada wrote.")


OPENAI = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "One?"},
        {"role": "assistant", "content": "1"},
        {"role": "tool", "content": "2"},
        {"role": "assistant", "content": "2!"},
        {"role": "user", "content": "not answered"},
    ]
}
SHAREGPT = {
    "conversations": [
        {"from": "system", "value": "Be brief."},
        {"from": "human", "value": "One?"},
        {"from": "gpt", "value": "1"},
        {"from": "function", "value": "2"},
        {"from": "gpt", "value": "2!"},
    ]
}


@pytest.mark.parametrize("row", [OPENAI, SHAREGPT], ids=["openai", "sharegpt"])
def test_conversations_are_read_up_to_their_last_answer(tmp_path: Path, row: Any) -> None:
    (pair,) = read_pairs(write(tmp_path / "rows.jsonl", [row]))
    assert pair.messages == OPENAI["messages"][:5]
    assert pair.record()["messages"] == OPENAI["messages"][:4]


@pytest.mark.parametrize(
    "turns, message",
    [
        ([{"role": "judge", "content": "x"}], "role 'judge' is none of system, user"),
        ([{"role": "user"}], "each with `role` and `content`"),
        ([{"role": "user", "content": "x"}], "nothing in `messages` is said and then answered"),
        ("hello", "must be a list of turns"),
    ],
)
def test_a_conversation_that_is_none_is_named(tmp_path: Path, turns: Any, message: str) -> None:
    with pytest.raises(BadInput, match="line 1") as error:
        read_pairs(write(tmp_path / "rows.jsonl", [{"messages": turns}]))
    assert message in str(error.value)


def test_a_pair_without_answer_field_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"line 1 has no 'response' or 'output'.*it has instruction"):
        read_pairs(write(tmp_path / "rows.jsonl", [{"instruction": "Add."}]))


groups = st.lists(st.integers(0, 12), min_size=2, max_size=60)


@settings(deadline=None)  # a busy machine is not a failure
@given(groups, st.floats(0.05, 0.5))
def test_no_group_is_on_both_sides(numbers: list[int], share: float) -> None:
    rows = [Snippet(f"t{i}", "x", f"g{n}") for i, n in enumerate(numbers)]
    train, heldout = split(rows, share)
    assert not {r.group for r in train} & {r.group for r in heldout}
    assert sorted(train + heldout, key=lambda r: r.order) == sorted(rows, key=lambda r: r.order)
    assert train
    assert bool(heldout) == (len(set(numbers)) > 1)


def test_every_class_is_on_both_sides() -> None:
    rows = [Snippet(f"{c}{i}", c, f"{c}/{i % 5}") for c in "abc" for i in range(50)]
    train, heldout = split_each_class(rows, 0.2)
    assert {r.label for r in train} == {r.label for r in heldout} == {"a", "b", "c"}
    assert len(heldout) == 30  # one file of ten rows in each class


def test_pairs_split_by_instruction() -> None:
    pairs = [Pair(str(i), f"q{i % 7}", f"a{i}", "", f"g{i % 7}", i) for i in range(70)]
    train, heldout = split(pairs, 0.2)
    assert len(heldout) == 20
    assert not {p.instruction for p in train} & {p.instruction for p in heldout}
