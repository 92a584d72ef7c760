"""Text as it comes: whole characters, nothing of a stop string, wherever tokens are cut."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from tasks.inference.text_stream import TextStream

PIECES = ["a", "b", "ab", "ba", " ", "END", "E", "N", "ND!", "x"]


def spell(ids: Sequence[int]) -> str:
    return "".join(PIECES[i] for i in ids)


def spell_bytes(ids: Sequence[int]) -> str:
    return bytes(ids).decode(errors="replace")


def run(ids: Sequence[int], *stops: str, decode=spell) -> tuple[list[str], TextStream]:
    stream = TextStream(decode, stops)
    pieces = [stream.push(token) for token in ids]
    return [*pieces, stream.finish()], stream


def tokens(*pieces: str) -> list[int]:
    return [PIECES.index(piece) for piece in pieces]


def test_a_stop_string_across_tokens_is_never_given():
    pieces, stream = run(tokens("a", " ", "E", "ND!", "b"), "END")
    assert pieces == ["a", " ", "", "", "", ""]
    assert (stream.text, stream.ids, stream.stopped) == ("a ", tokens("a", " "), True)


def test_text_before_a_stop_within_a_token_stays_and_its_token_goes():
    pieces, stream = run(tokens("x", "ab"), "b")
    assert pieces == ["x", "a", ""]
    assert (stream.text, stream.ids) == ("xa", tokens("x"))


def test_what_only_began_a_stop_string_is_given_in_the_end():
    pieces, stream = run(tokens("a", "E", "N"), "END")
    assert pieces == ["a", "", "", "EN"]
    assert (stream.text, stream.stopped) == ("aEN", False)


def test_what_turned_out_not_to_be_a_stop_string_is_given_at_once():
    assert run(tokens("E", "N", "x"), "END")[0] == ["", "", "ENx", ""]


def test_the_first_of_several_stops_counts():
    assert run(tokens("x", "ab", " "), "b", "a")[1].text == "x"


def test_a_character_of_several_tokens_is_given_whole():
    pieces, stream = run("é€".encode(), decode=spell_bytes)
    assert pieces == ["", "é", "", "", "€", ""]
    assert stream.text == "é€"


def test_bytes_that_are_no_character_are_given_as_such_in_the_end():
    assert run([65, 0xC3], decode=spell_bytes)[0] == ["A", "", "\ufffd"]


@given(
    st.lists(st.integers(0, len(PIECES) - 1), max_size=12),
    st.lists(st.text("abEND ", min_size=1, max_size=4), max_size=3),
)
def test_pieces_join_to_the_text_before_the_first_stop(ids, stops):
    pieces, stream = run(ids, *stops)
    whole = spell(ids)
    assert "".join(pieces) == stream.text
    assert whole.startswith(stream.text)
    assert not any(stop in stream.text for stop in stops)
    assert stream.stopped == any(stop in whole for stop in stops)
    assert stream.text == whole or any(whole[len(stream.text) :].startswith(s) for s in stops)
    assert stream.text.startswith(spell(stream.ids))
