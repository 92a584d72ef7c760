"""Each disguise that is documented is seen through, and the share that is, is published."""

import pytest

from tasks.data.privacy import obfuscation
from tasks.data.privacy.obfuscation import canonical, fold
from tasks.data.privacy.pii import mask

# One spelling a line of the documented list, and the words that the e-mail finder reads.
SPELLINGS = {
    "full-width": "ｊａｎｅ＠ｅｘａｍｐｌｅ．ｏｒｇ",
    "small forms": "jane﹫example﹒org",
    "font": "𝗃𝖺𝗇𝖾@example.org",
    "circled": "ⓙⓐⓝⓔ@example.org",
    "ideographic stop": "jane@example。org",
    "zero-width": "ja\u200bne@exam\u200dple.org",
    "soft hyphen": "jane@exam\u00adple.org",
    "bidi": "jane\u202e@example.org",
    "homoglyphs": "jаnе@ехаmрlе.оrg",
    "decimal entity": "jane&#64;example&#46;org",
    "hexadecimal entity": "jane&#x40;example&#x2E;org",
    "named entity": "jane&commat;example&period;org",
    "[at]": "jane[at]example.org",
    "(at) (dot)": "jane (at) example (dot) org",
    "{at}": "jane {AT} example {DOT} org",
    "at dot": "jane at example dot org",
    "spaces": "jane @ example.org",
    "dot in brackets": "jane@example[dot]org",
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_disguised_address_is_found_whole(name):
    assert mask(f"write to {SPELLINGS[name]} today") == "write to <EMAIL> today"
    assert canonical("email", SPELLINGS[name]) == "jane@example.org"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("４１１１　１１１１　１１１１　１１１１", "<CARD>"),
        ("٤١١١ ١١١١ ١١١١ ١١١١", "<CARD>"),
        ("call +1 202\u2011555\u20110143", "call <PHONE>"),
        ("１９２．１６８．０．１ up", "<IP> up"),
        ("GВ29 NWBK 6016 1331 9268 19", "<IBAN>"),
        ("4111&#32;1111&#32;1111&#32;1111", "<CARD>"),
    ],
)
def test_numbers_are_seen_through_their_disguise(text, masked):
    assert mask(text) == masked


def test_ordinary_text_is_no_disguise():
    text = "Встреча в 10 в доме; look at the dot com boom; AT&T &amp; co, x &lt; y"
    assert mask(text) == text


def test_the_list_names_every_rule():
    assert obfuscation.__doc__ is not None
    for rule in ("full-width", "zero-width", "homoglyphs", "HTML entities", "decimal digits"):
        assert rule in obfuscation.__doc__


def test_folding_gives_the_places_of_the_original():
    plain = fold("ab\u200bc&#64;d")
    assert plain.text == "abc@d"
    assert plain.unfold(1, 4) == (1, 9)
    assert [plain.place(k) for k in (0, 2, 3, 4, 9)] == [0, 2, 2, 3, 4]
