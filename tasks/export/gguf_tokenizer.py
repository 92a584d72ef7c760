"""What a GGUF file says of a tokenizer: its tokens with their types, merges or scores, and roles.

llama.cpp has tokenizers of its own. Two of them are what a `tokenizer.json` can hold: `gpt2`, byte
pairs over bytes within the words of a pattern that it knows by name, and `llama`, SentencePiece's
byte pairs, whose merges are the scores of what they make. It is told which; a tokenizer that would
give other tokens there is refused.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cluster.errors import BadInput
from tasks.tokens.encoder import BYTE, Encoder
from tasks.tokens.patterns import PATTERNS

if TYPE_CHECKING:
    from gguf import GGUFWriter

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTES = 1, 2, 3, 4, 5, 6
"""Types of tokens."""
NAMED = {"gpt2": "gpt-2", "cl100k": "dbrx", "o200k": "gpt-4o", "qwen": "qwen2"}
"""What llama.cpp calls our patterns of words."""
WHOLE_WORDS = {"dbrx": "llama-bpe"}
"""Its name of the same pattern where a word that is a token is taken whole, without merges."""
SPACE = "\u2581"
OTHERWISE = "llama.cpp would read text otherwise: take --format hf"
Part = dict[str, Any]


@dataclass(frozen=True)
class Vocabulary:
    """A tokenizer as llama.cpp has it: its `model`, `gpt2` or `llama`, its pattern of `words`, and
    the `merges` of the one or the `scores` of the other; the list that is not needed is empty.
    """

    model: str
    words: str
    merges: list[str]
    scores: list[float]
    prefix: bool = False
    """Whether a text is read as if a space stood before it."""


def write_tokenizer(writer: "GGUFWriter", encoder: Encoder, size: int) -> None:
    """Write the keys of a tokenizer for a network of `size` ids. Raises BadInput for one that
    llama.cpp has not.
    """
    definition = json.loads(encoder.definition)
    found = vocabulary(definition, size)
    tokens, types = _tokens(definition, size)
    writer.add_tokenizer_model(found.model)
    writer.add_tokenizer_pre(found.words)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    if found.scores:
        writer.add_token_scores(found.scores)
        writer.add_add_space_prefix(found.prefix)
    writer.add_token_merges(found.merges)
    _write_roles(writer, encoder, definition)


def _write_roles(writer: "GGUFWriter", encoder: Encoder, definition: Part) -> None:
    """What begins, ends and fills a text, and how one converses."""
    begin = encoder.special_tokens.get(encoder.roles.begin or "", encoder.eod)
    writer.add_bos_token_id(begin)
    writer.add_eos_token_id(encoder.eod)
    writer.add_pad_token_id(encoder.pad)
    for end in sorted(encoder.ends - {encoder.eod})[:1]:  # there is a key for one
        writer.add_eot_token_id(end)
    unknown = definition["model"].get("unk_token")
    if unknown in definition["model"]["vocab"]:
        writer.add_unk_token_id(definition["model"]["vocab"][unknown])
    opened, closed = _around(encoder, begin)
    writer.add_add_bos_token(opened)
    writer.add_add_eos_token(closed)
    if encoder.roles.template:
        writer.add_chat_template(encoder.roles.template)


def _around(encoder: Encoder, begin: int) -> tuple[bool, bool]:
    """Whether the tokenizer itself puts its begin before a text, and its end behind."""
    laid = [id_ for id_, _ in encoder.template(1)]
    place = laid.index(None)
    before, behind = laid[:place], laid[place + 1 :]
    if before not in ([], [begin]) or behind not in ([], [encoder.eod]):
        raise BadInput(f"the tokenizer puts the ids {laid} around a text; {OTHERWISE}")
    return bool(before), bool(behind)


def vocabulary(definition: Part, size: int) -> Vocabulary:
    """The kind of tokenizer that a `tokenizer.json` holds."""
    model = definition["model"]
    if model["type"] != "BPE":
        raise BadInput(
            f"the tokenizer is a {model['type']} model, of which llama.cpp has none over bytes; "
            "it has BPE (`tokenizer.kind: bpe`). Take --format hf"
        )
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    if model.get("byte_fallback"):
        return Vocabulary("llama", "default", [], _scores(model, merges, size), _prefix(definition))
    return Vocabulary("gpt2", _words(definition), merges, [])


def _words(definition: Part) -> str:
    """llama.cpp's name for how the tokenizer parts a text into words."""
    normalizer = definition.get("normalizer")
    if normalizer is not None and normalizer["type"] != "NFC":  # which it leaves out
        raise BadInput(f"the tokenizer has the normalizer {normalizer['type']}; {OTHERWISE}")
    parts = _parts(definition.get("pre_tokenizer"), "pretokenizers")
    kinds = [part["type"] for part in parts]
    found = None
    if kinds == ["Split", "ByteLevel"] and not parts[1]["use_regex"]:
        written = {expression: name for name, expression in PATTERNS.items()}
        found = NAMED.get(written.get(parts[0]["pattern"].get("Regex", ""), ""))
    elif kinds == ["ByteLevel"] and parts[0]["use_regex"]:
        found = NAMED["gpt2"]
    elif kinds == ["Digits", "ByteLevel"] and parts[0]["individual_digits"]:
        found = "smollm"
    if found is None or parts[-1]["add_prefix_space"]:
        raise BadInput(
            f"the tokenizer parts words by none of the patterns {', '.join(NAMED)}; {OTHERWISE}"
        )
    return WHOLE_WORDS.get(found, found) if definition["model"].get("ignore_merges") else found


def _scores(model: Part, merges: list[str], size: int) -> list[float]:
    """For each token, minus the number of the first merge that makes it: the best pair is merged
    first, and a token that no merge makes is never asked for its score.
    """
    ranks: dict[str, int] = {}
    for rank, merge in enumerate(merges):
        ranks.setdefault(merge.replace(" ", "", 1), rank)
    scores = [0.0] * size
    for token, id_ in model["vocab"].items():
        scores[id_] = -float(ranks.get(token, 0))
    return scores


def _prefix(definition: Part) -> bool:
    """Whether a space is put before a text that SentencePiece's byte pairs read; BadInput for a
    tokenizer that does more to it, or parts it into words.
    """
    steps = _parts(definition.get("normalizer"), "normalizers")
    steps += _parts(definition.get("pre_tokenizer"), "pretokenizers")
    prefix = escaped = False
    for step in steps:
        kind, pattern = step["type"], (step.get("pattern") or {}).get("String")
        if kind == "Prepend" and step["prepend"] == SPACE:
            prefix = True
        elif kind == "Replace" and pattern == " " and step["content"] == SPACE:
            escaped = True
        elif kind == "Metaspace" and step["replacement"] == SPACE and step.get("split") is False:
            prefix, escaped = step["prepend_scheme"] != "never", True
        elif not (kind == "Split" and pattern == " " and escaped):  # there is none left
            raise BadInput(f"the tokenizer has the step {kind} ({pattern}); {OTHERWISE}")
    if not escaped:
        raise BadInput(f"the tokenizer does not write a space as {SPACE}; {OTHERWISE}")
    return prefix


def _parts(step: Part | None, inner: str) -> list[Part]:
    """A step of a tokenizer, or those that it is a sequence of."""
    if step is None:
        return []
    return list(step[inner]) if step["type"] == "Sequence" else [step]


def _tokens(definition: Part, size: int) -> tuple[list[str], list[int]]:
    """Every id's token and type; ids that the tokenizer has not are padding of the network's."""
    tokens, types = [f"[PAD{n}]" for n in range(size)], [UNUSED] * size
    model = definition["model"]
    for token, id_ in model["vocab"].items():
        tokens[id_], types[id_] = token, _type(token, model)
    for added in definition.get("added_tokens") or []:
        tokens[added["id"]] = added["content"]
        if added["content"] != model.get("unk_token") or not model.get("byte_fallback"):
            types[added["id"]] = CONTROL if added["special"] else USER_DEFINED
    return tokens, types


def _type(token: str, model: Mapping[str, Any]) -> int:
    if not model.get("byte_fallback"):
        return NORMAL
    if token == model.get("unk_token"):
        return UNKNOWN
    return BYTES if BYTE.fullmatch(token) else NORMAL
