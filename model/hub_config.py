"""The `config.json` of a model: a shape in the words of Transformers, and back.

A shape has a counterpart in Transformers when writing it in that model's words and reading it again
gives the same shape; what does not come back is what stands in the way.
"""

import math
from dataclasses import MISSING, asdict, fields, replace
from typing import Any

from model.config import ExpertConfig, LatentConfig, ModelConfig, RecurrentConfig, RopeScaling
from model.counterparts import COUNTERPARTS
from model.counterparts.keys import Counterpart, Entry, File

OWN = "headrace"
DEMANDS: File = {"quantization_config": None, "compression_config": None}
"""Keys for what none of our models has, each with the value at which a file does not use it."""


def model_type(config: ModelConfig) -> str:
    """The Transformers `model_type` of a shape, or `headrace` when it has no counterpart."""
    nearest = _nearest(config)
    return OWN if _obstacles(config, COUNTERPARTS[nearest]) else nearest


def obstacle(config: ModelConfig) -> str | None:
    """What keeps a shape out of Transformers, field by field; None when nothing does."""
    return "; ".join(_obstacles(config, COUNTERPARTS[_nearest(config)])) or None


def describe(config: ModelConfig, model_type: str) -> File:
    """The keys of `config.json` that say this shape."""
    if model_type == OWN:
        return {"model_type": OWN, "architectures": ["Transformer"], **asdict(config)}
    counterpart = COUNTERPARTS[model_type]
    said: File = {"model_type": model_type, "architectures": [counterpart.model_class]}
    for name, entry in _entries(counterpart).items():
        said |= entry.write(getattr(config, name), config)
    return {**said, **counterpart.demands, **counterpart.says}


def parse(file: File) -> ModelConfig:
    """The shape that a `config.json` describes.

    Raises `KeyError` for a key that is missing and `ValueError` for a value without counterpart.
    """
    model_type = file["model_type"]
    if model_type == OWN:
        return _parse_own(file)
    if model_type not in COUNTERPARTS:
        known = ", ".join((*COUNTERPARTS, OWN))
        raise ValueError(f"model_type is {model_type!r}; it must be one of {known}")
    counterpart = COUNTERPARTS[model_type]
    for name, value in {**counterpart.demands, **DEMANDS}.items():
        if file.get(name) is not None and file[name] != value:
            raise ValueError(f"{name} is {file[name]!r}; it must be {value!r}")
    values = {
        name: entry.read(file) if isinstance(entry, Entry) else entry
        for name, entry in counterpart.fields.items()
    }
    return ModelConfig(**values)


def _nearest(config: ModelConfig) -> str:
    """The counterpart of the same family with the fewest obstacles; of several the first."""
    family = {
        name: counterpart
        for name, counterpart in COUNTERPARTS.items()
        if counterpart.fields.get("family", "decoder") == config.family
    }
    return min(family, key=lambda name: len(_obstacles(config, family[name])))


def _obstacles(config: ModelConfig, counterpart: Counterpart) -> list[str]:
    """The fields of a shape that a counterpart cannot say, each with what it can."""
    only = _unsayable(config, counterpart)
    said: File = {}
    for name, entry in _entries(counterpart).items():
        if name not in only:
            said |= entry.write(getattr(config, name), config)
    for name, entry in _entries(counterpart).items():
        if name not in only:
            back = _read_back(entry, said)
            if not _same(config, name, back):
                only[name] = repr(back)
    return [
        f"model.{name} is {getattr(config, name)!r}, {counterpart.model_class} has only {values}"
        for name, values in only.items()
    ]


def _unsayable(config: ModelConfig, counterpart: Counterpart) -> dict[str, str]:
    """Fields with a value for which there is no word, and what there are words for."""
    only = {}
    for field in fields(config):
        entry = counterpart.fields.get(field.name, field.default)
        allowed = entry.values if isinstance(entry, Entry) else (entry,)
        if allowed is not None and not any(_same(config, field.name, one) for one in allowed):
            only[field.name] = " or ".join(map(repr, allowed))
    return only


def _entries(counterpart: Counterpart) -> dict[str, Entry]:
    return {name: e for name, e in counterpart.fields.items() if isinstance(e, Entry)}


def _read_back(entry: Entry, said: File) -> Any:
    try:
        return entry.read(said)
    except KeyError as missing:
        return f"values with a {missing}"


def _same(config: ModelConfig, name: str, back: Any) -> bool:
    """Whether a field could as well have this value."""
    value = getattr(config, name)
    if name in BY_LAYER and type(back) is type(value):
        return _layers(replace(config, **{name: back})) == _layers(config)
    if isinstance(back, float) and isinstance(value, float):
        return math.isclose(back, value)  # one that was computed from what was written
    return bool(back == value)


BY_LAYER = ("window_layers", "rope_layers")
"""Fields that repeat over the layers: two differ only where that gives some layer another value."""


def _layers(config: ModelConfig) -> list[Any]:
    return [(config.layer_window(n), config.layer_rope(n)) for n in range(config.depth)]


def _parse_own(file: File) -> ModelConfig:
    """Every field is a key; one that the file lacks has its default."""
    said = {f.name: file[f.name] for f in fields(ModelConfig) if f.name in file}
    for f in fields(ModelConfig):
        if f.default is MISSING and f.name not in said:
            raise KeyError(f.name)
    for name, older in RENAMED.items():
        if name in said:
            said[name] = older.get(str(said[name]), said[name])
    for name, kind in NESTED.items():
        if said.get(name) is not None:
            said[name] = kind(**_with_tuples(said[name]))
    return ModelConfig(**_with_tuples(said))


def _with_tuples(values: File) -> File:
    """JSON has lists only."""
    return {n: tuple(v) if isinstance(v, list) else v for n, v in values.items()}


RENAMED: dict[str, dict[str, Any]] = {
    "qk_norm": {"False": "none", "True": "head"},
    "window_layers": {"all": (True,), "even": (True, False)},
}
"""What files of our own said before a field had its present values."""


NESTED: dict[str, type] = {
    "rope_scaling": RopeScaling,
    "latent": LatentConfig,
    "experts": ExpertConfig,
    "recurrent": RecurrentConfig,
}
