"""How text falls into words before subwords are learnt: published patterns, or one's own.

A pattern is a regular expression of the library `tokenizers`, which is Oniguruma's: its matches are
words, and what lies between two of them is one too, so that no character is lost. No token reaches
across words. `expression` gives the regular expression of a pattern, `steps` the splits that stand
in `tokenizer.json`.
"""

import re
from collections.abc import Sequence
from typing import Any

PATTERNS = {
    # GPT-2's: letters and numbers take a blank, contractions are in small letters.
    "gpt2": r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    # GPT-4's cl100k_base as first released, and Llama 3's. Since then tiktoken's ends in `\s++$`,
    # which joins the white space at the end of a text where a newline would part it.
    "cl100k": (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    # GPT-4o's o200k_base.
    "o200k": (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    # Qwen 2's and 3's. Their normalizer, NFC, is no part of it: a text comes back as it was.
    "qwen": (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
}

KERNEL_PATTERN = "cl100k"
"""The one whose words a kernel finds."""
# To Python's `regex`, PCRE and Rust `{1,3}+` gives nothing back; to Oniguruma it is any number of
# times one to three.
POSSESSIVE = re.compile(
    r"(\\[pP]\{[^}]*\}|\\.|\[(?:\\.|[^]\\])+\]|[^][(){}\\|])(\{\d*,?\d*\})\+", re.DOTALL
)


def expression(pattern: str) -> str:
    """The regular expression of a pattern, by name or as it is, a possessive `{n,m}+` made atomic.

    Raises ValueError for what is neither a name nor a regular expression.
    """
    if pattern in PATTERNS:
        return PATTERNS[pattern]
    if re.fullmatch(r"[\w-]*", pattern):
        raise ValueError(
            f"pattern: {pattern!r} is none of {', '.join(PATTERNS)}, nor a regular expression "
            "that parts words"
        )
    from tokenizers import Regex

    own = POSSESSIVE.sub(r"(?>\1\2)", pattern)
    if re.search(r"\{\d*,?\d*\}\+", own):
        raise ValueError(
            f"pattern: write (?>(...){{n,m}}) for the possessive (...){{n,m}}+ in {own}"
        )
    try:
        Regex(own)
    except Exception as error:  # the library raises bare Exception
        raise ValueError(f"pattern: {pattern!r} is no regular expression: {error}") from None
    return own


def steps(pattern: str, specials: Sequence[str]) -> list[Any]:
    """The splits of `tokenizers` that part a text into the words of a pattern.

    No published pattern leaves a special token in one word. From a pattern of one's own the first
    two signs of one that a text spells are parted, so that no merge can make it.
    """
    from tokenizers import Regex, pre_tokenizers

    expressions = [expression(pattern)]
    if pattern not in PATTERNS:
        names = "|".join(re.escape(token[2:]) for token in specials)
        expressions.insert(0, rf"<\|(?={names})")
    return [pre_tokenizers.Split(Regex(one), "isolated") for one in expressions]
