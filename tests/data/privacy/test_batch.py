"""The native pass and its windows find what the finders find in the whole text."""

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tasks.data.privacy.batch import char_spans, find_all, replace_all
from tasks.data.privacy.obfuscation import fold
from tasks.data.privacy.pii import DEFAULT_KINDS, FINDERS, find
from tasks.data.privacy.quality import OWN, read_labelled

KINDS = tuple(FINDERS)
PIECES = (
    "jane.doe",
    "@",
    "example.org",
    " at ",
    " dot ",
    "[at]",
    " (dot) ",
    "com",
    "&#64;",
    "&#x2e;",
    "&amp;",
    "8.8.8.8",
    "192.168.0.1",
    "2001:db8::1",
    "1:2:3:4:5:6:7:8",
    "::",
    "+1 202 555 0143",
    "202-555-0143",
    "0688 872 49 99",
    "699 956 915",
    "00420 603 212 402",
    "(0141) 496 0654",
    "8 (816) 781-0586",
    "call ",
    "Телефон: ",
    "my number ",
    "invoice ",
    " is my cell",
    "Tel: ",
    " fax",
    "number ",
    "4111 1111 1111 1111",
    "378282246310005",
    "GB29 NWBK 6016 1331 9268 19",
    "DE89370400440532013000",
    "123-45-6789",
    "X1234567L",
    "AB 12 34 56 C",
    "RSSMRA85T10A562S",
    "529.982.247-25",
    "AKIA" + "IOSFODNN7EXAMPLE",
    "ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a",
    "://bob:s3cret@host",
    'password = "',
    "hG7!kd93_Lq0zPw2",
    '"',
    "Bearer ",
    "abcdefghij0123456789xyz",
    "-----BEGIN RSA PRIVATE KEY-----",
    "-----END RSA PRIVATE KEY-----",
    "\u200b",
    "é",
    "д",
    "电话",
    "４１１１",
    "٤",
    " ",
    "\n",
    "-",
    ".",
    "(",
    ")",
    "+",
    "=",
    ":",
    "_",
    "0",
    "7",
    "a",
    "12 Main Street",
)
texts = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)


def both_ways(values, kinds=KINDS):
    """What the batch finds and what whole texts give, in characters."""
    array = pa.array(values, pa.large_string())
    found = find_all(array, kinds)
    batch = [char_spans(value, found.get(i, ())) for i, value in enumerate(values)]
    return batch, [find(value, kinds) for value in values]


@settings(max_examples=600, deadline=None)
@given(st.lists(texts, max_size=4))
@example(["jane&#64;example.org", "", "x", "jane@example.org\u200b"])
@example(["ééé 4111 1111 1111 1111", "４111111111111111"])
def test_windows_find_what_the_whole_text_gives(values):
    batch, whole = both_ways(values)
    assert batch == whole


def test_windows_find_it_in_long_and_labelled_texts():
    values = [row.text for row in read_labelled(OWN)]
    values += ["word " * 400 + v + " word" * 400 for v in values] + [
        "слово " * 300 + v for v in values
    ]
    values += ["\n".join(values)]
    batch, whole = both_ways(values)
    assert batch == whole
    assert sum(map(len, whole)) > 300


@given(st.text(max_size=60))
def test_folding_keeps_places(text):
    plain = fold(text)
    for k in range(len(plain.text)):
        start, end = plain.unfold(k, k + 1)
        assert 0 <= start < end <= len(text)
        assert plain.place(start) <= k


def test_untouched_texts_are_passed_on_without_a_copy():
    array = pa.array(["nothing here", "version 1.2.3"], pa.large_string())
    found = find_all(array, DEFAULT_KINDS)
    assert found == {}
    assert replace_all(array, found, lambda kind, value: "") is array


@pytest.mark.parametrize("offset", [0, 1, 2])
def test_only_what_was_found_is_replaced_in_slices_too(offset):
    values = ["é jane@example.org é", "", "8.8.8.8", "plain", "💡 +1 202 555 0143"]
    array = pa.array(values, pa.large_string()).slice(offset)
    out = replace_all(array, find_all(array, DEFAULT_KINDS), lambda kind, value: f"<{kind}>")
    out.validate(full=True)
    wanted = ["é <email> é", "", "<ip>", "plain", "💡 <phone>"]
    assert out.to_pylist() == wanted[offset:]


def test_regions_decide_which_national_numbers_count():
    array = pa.array(["write to 030 12345678 today"], pa.large_string())
    assert find_all(array, ["phone"], ["DE"])
    assert not find_all(array, ["phone"], ["US"])
