"""Words and merges by other people's rules: published patterns, one's own, and both kinds of ties.

The trainer compared with is a textbook's: words as the module `regex` finds them, pairs of byte
strings, all of them counted anew for every merge.
"""

import json
import random
from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
import regex
from tokenizers import Tokenizer

from cluster.artifact import Artifact
from cluster.stage import build
from cluster.store import Store
from tasks.tokens.encoder import SPECIALS, Encoder, byte_characters, load, pieces
from tasks.tokens.native import NativeEncoder, encode_batch
from tasks.tokens.patterns import PATTERNS, expression, steps
from tasks.tokens.vocabulary.settings import TokenizerSettings
from tasks.tokens.vocabulary.stage import train_tokenizer

Bytes = tuple[bytes, ...]
CONTRACTED = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
# As their makers write them: tiktoken's openai_public.py and GPT-2's encoder.py, Qwen's
# tokenizer.json, and what `cl100k_base` has become in tiktoken.
PUBLISHED = {
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "cl100k": CONTRACTED + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    "o200k": "|".join(
        [
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
            + CONTRACTED
            + "?",
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
            + CONTRACTED
            + "?",
            r"\p{N}{1,3}",
            r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
            r"\s*[\r\n]+",
            r"\s+(?!\S)",
            r"\s+",
        ]
    ),
    "qwen": CONTRACTED + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
}
OWN = {
    "tiktoken": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+"
    r"| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    "spaces": r"\S+|\s+",
    "lines": r"[^\n]*\n|[^\n]+",
}
RULES = PUBLISHED | OWN
ODD = (
    "'sStTrRlLvVeEdDmM 09 \n\r\t/\u00a0\u3000\u2028\x85\x1c"
    "\u0300aB\u00e9\u6f22\u017f1\u00b2\u0663!_\u2026\U0001f600\u01c5\u02b0\u00df"
)


def odd_texts(count: int) -> list[str]:
    draw = random.Random(1)
    return ["".join(draw.choices(ODD, k=draw.randint(1, 30))) for _ in range(count)]


def named(rule: str) -> str:
    """What a recipe says: a name, or the regular expression."""
    return rule if rule in PATTERNS else RULES[rule]


def trained(store: Store, text: Artifact, **rules: object) -> Artifact:
    settings = TokenizerSettings.model_validate({"vocab_size": 400, **rules})
    return build(train_tokenizer, store, text=text, settings=settings)


def merges_of(tokenizer: Artifact) -> list[Bytes]:
    byte_of = {character: byte for byte, character in enumerate(byte_characters())}
    model = json.loads(tokenizer.file("tokenizer.json").read_text())["model"]
    return [tuple(bytes(map(byte_of.__getitem__, one)) for one in pair) for pair in model["merges"]]


def textbook(texts: list[str], rule: str, ties: str, count: int) -> list[Bytes]:
    """So many merges, all pairs of all words counted anew for each."""
    found = Counter(word for text in texts for word in regex.findall(RULES[rule], text))
    words = [([bytes([byte]) for byte in word.encode()], n) for word, n in found.items()]
    letters = byte_characters()
    order = sorted(range(256), key=letters.__getitem__)
    ids = {bytes([byte]): index for index, byte in enumerate(order)}
    merges: list[Bytes] = []
    while len(merges) < count:
        counts: Counter[Bytes] = Counter()
        for symbols, n in words:
            for pair in pairwise(symbols):
                counts[pair] += n
        if not counts:
            break
        if ties == "lexical":
            best = max(counts, key=lambda pair: (counts[pair], pair))
        else:
            best = min(counts, key=lambda pair: (-counts[pair], ids[pair[0]], ids[pair[1]]))
        merges.append(best)
        ids.setdefault(b"".join(best), len(ids))
        words = [(applied(symbols, best), n) for symbols, n in words]
    return merges


def applied(symbols: list[bytes], pair: Bytes) -> list[bytes]:
    out: list[bytes] = []
    for symbol in symbols:
        out.append(symbol)
        # What was joined just now is no left side of the same pair: it is longer.
        if tuple(out[-2:]) == pair:
            out[-2:] = [b"".join(pair)]
    return out


@pytest.mark.parametrize("rule", RULES)
def test_words_are_those_of_the_published_pattern(rule: str) -> None:
    splits = steps(named(rule), SPECIALS)
    for text in odd_texts(3000):
        words = [text]
        for split in splits:
            words = [word for part in words for word, _ in split.pre_tokenize_str(part)]
        assert words == regex.findall(RULES[rule], text)


@pytest.mark.parametrize("ties", ["huggingface", "lexical"])
@pytest.mark.parametrize("rule", RULES)
def test_merges_are_those_of_a_textbook(
    store: Store,
    make_text: Callable[[list[str]], Artifact],
    documents: list[str],
    rule: str,
    ties: str,
) -> None:
    texts = documents[:12] + odd_texts(40)
    tokenizer = trained(store, make_text(texts), pattern=named(rule), ties=ties)
    assert merges_of(tokenizer) == textbook(texts, rule, ties, 400 - 260)
    native = rule == "cl100k" or ties == "lexical"
    assert tokenizer.manifest.facts["trained_by"] == ("headrace" if native else "tokenizers")


@pytest.mark.parametrize("letters", ["a", "ab", "ab ", "\xff\xfe\u0100"])
def test_lexical_ties_in_runs(
    store: Store, make_text: Callable[[list[str]], Artifact], letters: str
) -> None:
    draw = random.Random(letters)
    texts = ["".join(draw.choices(letters, k=draw.randint(1, 40))) for _ in range(15)]
    tokenizer = trained(store, make_text(texts), vocab_size=300, ties="lexical")
    assert merges_of(tokenizer) == textbook(texts, "cl100k", "lexical", 40)


def test_lexical_ties_where_the_kernel_finds_other_words(
    store: Store, make_text: Callable[[list[str]], Artifact], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = make_text(["low lower newest widest"] * 3)
    good = trained(store, text, ties="lexical")
    monkeypatch.setattr("tasks.tokens.vocabulary.stage._agree", lambda *_: False)
    settings = TokenizerSettings(vocab_size=400, ties="lexical")
    again = build(train_tokenizer, store, text=text, settings=settings, force=True)
    assert again.manifest.files == good.manifest.files


@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "unigram"])
@pytest.mark.parametrize("rule", RULES)
def test_ids_are_those_of_the_exported_file(
    store: Store,
    make_text: Callable[[list[str]], Artifact],
    documents: list[str],
    rule: str,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = make_text(documents[:40] + odd_texts(100))
    artifact = trained(store, text, pattern=named(rule), kind=kind, vocab_size=600)
    exported, encoder = Tokenizer.from_file(str(artifact.file("tokenizer.json"))), load(artifact)
    exported.encode_special_tokens = True
    texts = [*odd_texts(300), "<|endoftext|> a<|pad|>", "a\n  \nb " * 300]
    want = [exported.encode(text, add_special_tokens=False).ids for text in texts]
    monkeypatch.setattr("tasks.tokens.encoder.PIECE", 50)
    assert len(list(pieces(texts[-1]))) > 10
    assert encoder.encode_batch(texts) == want
    assert [encoder.decode(ids) for ids in want] == texts
    assert not {index for ids in want for index in ids} & encoder.special_ids
    check_engine(encoder, texts, want, rule, kind)


def check_engine(
    encoder: Encoder, texts: list[str], want: list[list[int]], rule: str, kind: str
) -> None:
    """Published patterns are encoded by the native engine, with the same ids."""
    if rule in OWN or kind != "bpe":
        with pytest.raises(ValueError, match="gigatoken"):
            NativeEncoder(encoder.definition)
        return
    array = pa.array(texts, pa.large_string())
    ids = encode_batch(encoder, NativeEncoder(encoder.definition), array)
    assert np.array_equal(ids, [index for ids in want for index in (*ids, encoder.eod)])


def test_text_that_spells_a_special_token_makes_none_by_any_pattern(
    store: Store, make_text: Callable[[list[str]], Artifact]
) -> None:
    text = make_text(["<|endoftext|> <|note|> "] * 50)
    for ties in ("huggingface", "lexical"):
        rules = {"pattern": r"\S+|\s+", "ties": ties, "special_tokens": ["<|note|>"]}
        encoder = load(trained(store, text, **rules))
        assert not set(encoder.encode("<|endoftext|><|note|>")) & encoder.special_ids
        assert len(encoder.encode("<|note|>")) == 2


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("gpt-2", "'gpt-2' is none of gpt2, cl100k, o200k, qwen, nor a regular expression"),
        (r"\p{L}+|(", "is no regular expression: .*unmatched parenthesis"),
        (r"(?:ab){1,2}+|.", r"write \(\?>\(\.\.\.\)\{n,m\}\)"),
    ],
)
def test_a_pattern_that_is_none_is_refused(pattern: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        TokenizerSettings(pattern=pattern)


def test_a_possessive_range_gives_nothing_back() -> None:
    assert expression(r"\p{N}{1,3}+|[a\]b]{2,}+.") == r"(?>\p{N}{1,3})|(?>[a\]b]{2,})."


def test_ties_are_of_merges() -> None:
    with pytest.raises(ValueError, match="ties lexical is for kind bpe, not for unigram"):
        TokenizerSettings(kind="unigram", ties="lexical")
