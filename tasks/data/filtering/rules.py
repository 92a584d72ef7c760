"""Filter rules: a measure of a text and a limit for it. A rule's name is the reason it gives.

A preset is a set of rules with limits, tried in order. Line rules take lines out of a text; the
rules after them see what is left, so their order is that of the authors. Sources: Gopher (Rae et
al. 2021, arXiv 2112.11446, appendix A.1.1), C4 (Raffel et al. 2020, arXiv 1910.10683, section 2.2),
FineWeb (Penedo et al. 2024, arXiv 2406.17557, section 3.5), The Stack and StarCoder (Li et al.
2023, arXiv 2305.06161, section 3).
"""

from typing import Literal, NamedTuple


class Rule(NamedTuple):
    """What is measured (a column of a scorer, see `measures`), and which side the limit is on."""

    measure: str
    side: Literal["min", "max"]


RULES: dict[str, Rule] = {
    "too_short": Rule("stripped_length", "min"),
    "too_long": Rule("length", "max"),
    "unprintable": Rule("unprintable_share", "max"),
    "few_alphanumerics": Rule("alphanumeric_share", "min"),
    "unbroken_run": Rule("longest_run", "max"),
    "short_runs": Rule("mean_run", "min"),
    "long_line": Rule("longest_line", "max"),
    "long_lines": Rule("mean_line", "max"),
    "lorem_ipsum": Rule("lorem_ipsum", "max"),
    "curly_bracket": Rule("curly_brackets", "max"),
    "repeated_paragraphs": Rule("repeated_paragraph_share", "max"),
    "repeated_paragraph_chars": Rule("repeated_paragraph_chars", "max"),
    "repeated_lines": Rule("repeated_line_share", "max"),
    "repeated_line_chars": Rule("repeated_line_chars", "max"),
    "repeated_text": Rule("repeated_written_chars", "max"),
    "bullet_lines": Rule("bullet_lines", "max"),
    "ellipsis_lines": Rule("ellipsis_lines", "max"),
    "unpunctuated_lines": Rule("punctuated_lines", "min"),
    "short_lines": Rule("short_lines", "max"),
    "few_words": Rule("words", "min"),
    "many_words": Rule("words", "max"),
    "short_words": Rule("word_length", "min"),
    "long_words": Rule("word_length", "max"),
    "many_hashes": Rule("hashes_per_word", "max"),
    "many_ellipses": Rule("ellipses_per_word", "max"),
    "few_alphabetic_words": Rule("alphabetic_word_share", "min"),
    "few_stop_words": Rule("stop_words", "min"),
    "few_sentences": Rule("sentences", "min"),
    "many_newlines": Rule("newlines_per_word", "max"),
    **{f"top_{n}gram": Rule(f"top_{n}gram_share", "max") for n in (2, 3, 4)},
    **{f"repeated_{n}grams": Rule(f"repeated_{n}gram_share", "max") for n in range(5, 11)},
    "generated": Rule("generated_marks", "max"),
    "encoded_data": Rule("encoded_share", "max"),
    "xml": Rule("xml_header", "max"),
}
# What is measured of a line; those that break the limit are taken out of the text. The last takes
# marks of citations out of lines.
LINE_RULES: dict[str, Rule] = {
    "line_long_word": Rule("characters of its longest word", "max"),
    "line_unpunctuated": Rule("1 unless it ends in . ? ! \" or '", "max"),
    "line_few_words": Rule("words", "min"),
    "line_javascript": Rule("1 when it speaks of JavaScript", "max"),
    "line_policy": Rule("1 when it speaks of cookies, privacy or terms of use", "max"),
    "line_citation": Rule("marks such as [12] or [edit]", "max"),
}

BASIC: dict[str, float] = {
    "too_long": 10_000_000,
    "too_short": 50,
    "unprintable": 0.01,
    "few_alphanumerics": 0.4,
    "unbroken_run": 5_000,
    "short_runs": 1.5,
    "repeated_text": 0.5,
}
CODE: dict[str, float] = {
    "too_long": 1_000_000,
    "too_short": 100,
    "unprintable": 0.01,
    "long_line": 1000,
    "long_lines": 100,
    "few_alphanumerics": 0.25,
    "generated": 0,
    "encoded_data": 0.5,
    "xml": 0,
}
GOPHER_REPETITION: dict[str, float] = {
    "repeated_paragraphs": 0.3,
    "repeated_paragraph_chars": 0.2,
    "repeated_lines": 0.3,
    "repeated_line_chars": 0.2,
    "top_2gram": 0.20,
    "top_3gram": 0.18,
    "top_4gram": 0.16,
    "repeated_5grams": 0.15,
    "repeated_6grams": 0.14,
    "repeated_7grams": 0.13,
    "repeated_8grams": 0.12,
    "repeated_9grams": 0.11,
    "repeated_10grams": 0.10,
}
GOPHER_QUALITY: dict[str, float] = {
    "few_words": 50,
    "many_words": 100_000,
    "short_words": 3,
    "long_words": 10,
    "many_hashes": 0.1,
    "many_ellipses": 0.1,
    "bullet_lines": 0.9,
    "ellipsis_lines": 0.3,
    "few_alphabetic_words": 0.8,
    "few_stop_words": 2,
}
C4: dict[str, float] = {
    "line_long_word": 1000,
    "line_unpunctuated": 0,  # FineWeb itself drops this rule
    "line_few_words": 3,
    "line_citation": 0,
    # A page is given up for what stands in a line that the rules below would take out.
    "lorem_ipsum": 0,
    "line_javascript": 0,
    "curly_bracket": 0,
    "line_policy": 0,
    "few_sentences": 5,
}
FINEWEB: dict[str, float] = {
    "unpunctuated_lines": 0.12,
    "short_lines": 0.67,
    "repeated_text": 0.01,
    "many_newlines": 0.3,
}
WEB = {"too_long": 10_000_000.0} | GOPHER_REPETITION | GOPHER_QUALITY | C4 | FINEWEB
PRESETS = {"basic": BASIC, "code": CODE, "web": WEB}
