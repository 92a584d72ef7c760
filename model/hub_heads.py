"""Task heads in model folders: the classes of Transformers that have them, and their names there.

A folder whose head Transformers has a class for is loaded by it whole, as by
`AutoModelForSequenceClassification`, with equal logits; of another it loads the network. Either way
`config.json` says under `headrace_head` what the head is.
"""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from torch import Tensor

from model.counterparts import COUNTERPARTS
from model.counterparts.keys import File
from model.head_config import Head, Kind, Pooling

KEY = "headrace_head"
OWN_PREFIX = "headrace_head."
MIX = ("mix", "gain")
"""What a head that reads all layers has beside the rest."""
KINDS: dict[str, Kind] = {
    "ForSequenceClassification": "sequence",
    "ForTokenClassification": "token",
    "ForQuestionAnswering": "span",
}
"""By what the name of a class ends with."""
SUFFIXES = {kind: suffix for suffix, kind in KINDS.items()}
BASES = re.compile("ForCausalLM$|LMHeadModel$|ForMaskedLM$|Model$")


@dataclass(frozen=True)
class Place:
    """Where a class has the head: our modules -> its, and what it has before the names of the base
    class `instead` of what the class with an LM head has there.
    """

    names: Mapping[str, str]
    pooling: Pooling | None = None
    instead: tuple[str, str] = ("", "")
    says: File = field(default_factory=dict)
    """Keys by which its `config.json` says so."""


def _decoder(tagger: str = "score", span: str | None = "model.") -> dict[Kind, Place]:
    """Of a decoder; `span` is the prefix that question answering calls `transformer.`."""
    found: dict[Kind, Place] = {"sequence": Place({"classifier": "score"}, "last")}
    if tagger:
        found["token"] = Place({"classifier": tagger})
    if span is not None:
        old = (span, "transformer.") if span else ("", "")
        found["span"] = Place({"classifier": "qa_outputs"}, instead=old)
    return found


def _encoder(
    prefix: str, sequence: Mapping[str, str], says: File | None = None
) -> dict[Kind, Place]:
    base = ("", prefix)  # the base class has no prefix
    return {
        "sequence": Place(sequence, "first", base, says or {}),
        "token": Place({"classifier": "classifier"}, instead=base),
        "span": Place({"classifier": "qa_outputs"}, instead=base),
    }


ROBERTA_NAMES = {"pooler": "classifier.dense", "classifier": "classifier.out_proj"}
ROBERTA = _encoder("roberta.", ROBERTA_NAMES)
XLNET = _encoder(
    "transformer.",
    {"pooler": "sequence_summary.summary", "classifier": "logits_proj"},
    {"summary_type": "first", "summary_use_proj": True, "summary_activation": "tanh"},
)
del XLNET["span"]  # its class answers by a search
PLACES: dict[str, dict[Kind, Place]] = {
    "llama": _decoder(),
    "gpt2": _decoder("classifier", span=""),
    "openai-gpt": _decoder("", span=None),
    "mistral": _decoder(),
    "mixtral": _decoder(span=""),
    "qwen2": _decoder(),
    "qwen3": _decoder(),
    "qwen3_moe": _decoder(),
    "gemma": _decoder(span=None),
    "gemma2": _decoder(span=None),
    "olmo2": _decoder("", span=None),
    "olmo3": _decoder("", span=None),
    "smollm3": _decoder(),
    "phi3": _decoder(span=None),
    "gpt_neox": _decoder("classifier", span=""),
    "falcon": _decoder("classifier", span=""),
    "deepseek_v3": _decoder(span=None),
    "bert": _encoder("bert.", {"classifier": "classifier"}),
    "roberta": ROBERTA,
    "xlm-roberta": ROBERTA,
    "distilbert": _encoder("distilbert.", {"pooler": "pre_classifier", "classifier": "classifier"}),
    "albert": _encoder("albert.", {"classifier": "classifier"}),
    "electra": _encoder("electra.", ROBERTA_NAMES),
    "deberta-v2": _encoder("deberta.", {"pooler": "pooler.dense", "classifier": "classifier"}),
    "xlnet": XLNET,
}
"""By `model_type`, then by kind of head."""


def place_of(model_type: str, head: Head) -> Place | None:
    """Where Transformers has such a head on such a network; None where it has no class for it."""
    place = PLACES.get(model_type, {}).get(head.kind)
    fits = place is not None and place.pooling in (None, head.pooling) and head.layers == "last"
    return place if fits else None


def describe(model_type: str, head: Head) -> File:
    """The keys of `config.json` that say which head there is."""
    said: File = {KEY: asdict(head)}
    if head.layers == "last":  # as every head was before there was a choice
        del said[KEY]["layers"]
    if head.kind == "sequence":
        said["problem_type"] = head.problem
    if place := place_of(model_type, head):
        said |= place.says
        stem = BASES.sub("", COUNTERPARTS[model_type].model_class)
        said["architectures"] = [stem + SUFFIXES[head.kind]]
    return said


def read(about: File) -> Head | None:
    """The head that a `config.json` describes, ours or a published one; None where there is none.

    Published ones are read as Transformers reads them, the number of outputs from the names of
    labels, of which it takes two where none are named.
    """
    if KEY in about:
        return Head(**about[KEY])
    kind = _kind(about)
    place = PLACES.get(about.get("model_type", ""), {}).get(kind) if kind else None
    if (
        kind is None
        or place is None
        or any(about.get(key) != said for key, said in place.says.items())
    ):
        return None
    outputs = 2 if kind == "span" else len(about.get("id2label") or "01")
    one = "regression" if outputs == 1 else "single_label_classification"
    return Head(kind, outputs, place.pooling or "last", about.get("problem_type") or one)


def _kind(about: File) -> Kind | None:
    named = str((about.get("architectures") or [""])[0])
    return next((kind for suffix, kind in KINDS.items() if named.endswith(suffix)), None)


def export(
    theirs: Mapping[str, Tensor], own: Mapping[str, Tensor], model_type: str, head: Head
) -> dict[str, Tensor]:
    """A file of a network, `theirs`, together with the tensors of the head, by our names."""
    place = place_of(model_type, head)
    if place is None:
        return {**theirs, **{f"{OWN_PREFIX}{name}": tensor for name, tensor in own.items()}}
    base, prefix = place.instead
    found = {
        prefix + name.removeprefix(base) if name.startswith(base) else name: tensor
        for name, tensor in theirs.items()
    }
    for ours, there in place.names.items():
        for part in ("weight", "bias"):
            if f"{ours}.{part}" in own:
                found[f"{there}.{part}"] = own[f"{ours}.{part}"]
            pooled = f"{prefix}pooler.dense.{part}"
            if ours == "pooler" and pooled in found:
                found[f"{there}.{part}"] = found.pop(pooled)
    return found


def split(about: File, found: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a file holds of the network, a pooler that is part of the head among it, and of the
    head, by our names.
    """
    head = read(about)
    if head is None:
        return dict(found), {}
    place = place_of(about["model_type"], head)
    names = place.names if place else {"classifier": OWN_PREFIX + "classifier"}
    ours = {
        f"{there}.{part}": f"{module}.{part}"
        for module, there in names.items()
        for part in ("weight", "bias")
    }
    ours |= {f"{OWN_PREFIX}{name}": name for name in MIX if head.layers == "weighted"}
    rest = {name: value for name, value in found.items() if name not in ours}
    own = {ours[name]: value for name, value in found.items() if name in ours}
    for name in [name for name in own if name.startswith("pooler.")]:
        rest[name.replace("pooler.", "pooler.dense.")] = own.pop(name)
    return rest, own
