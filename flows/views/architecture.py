"""What `show` says of a network: its parts with parameters and FLOPs, without building it."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cluster.errors import BadInput
from flows.views.output import Output, human
from model.config import ModelConfig
from model.flops import (
    active_parameter_count,
    approximate_parameter_count,
    flops_per_token,
    parameter_count,
    training_bytes,
)
from model.hub_config import describe, model_type, obstacle, parse
from model.part import Part
from model.parts import parts
from model.presets import PRESETS, preset


def config_of(name: str) -> ModelConfig | None:
    """The shape of a preset or of a model folder; None for other names.

    Raises BadInput for a folder whose `config.json` describes no model of ours.
    """
    if name in PRESETS:
        return preset(name)
    file = Path(name) / "config.json"
    if not file.is_file():
        return None
    try:
        return parse(json.loads(file.read_text(encoding="utf-8")))
    except KeyError as missing:
        raise BadInput(f"{file} has no {missing}") from None
    except ValueError as error:
        raise BadInput(f"{file}: {error}") from None


def describe_model(name: str, config: ModelConfig) -> dict[str, Any]:
    """Totals at the model's context, and the parts they are the sums of."""
    return {
        "name": name,
        "architecture": describe(config, model_type(config))["architectures"][0],
        "only_here": obstacle(config),
        "params": parameter_count(config),
        "active_params": active_parameter_count(config),
        "approximate_params": None if config.recurrent else approximate_parameter_count(config),
        "flops_per_token": flops_per_token(config, config.context),
        "training_bytes": training_bytes(config),
        "context": config.context,
        "parts": [_describe_part(part) for part in parts(config)],
        "shape": asdict(config),
    }


def print_model(out: Output, about: dict[str, Any]) -> None:
    """The description as a table."""
    shape = about["shape"]
    out.say(
        f"{about['name']}: {shape['family'].replace('_', '-')}, {shape['depth']} layers of width "
        f"{shape['width']}, {_inside(shape)}, vocabulary {shape['vocab_size']}"
    )
    totals = (about["params"], about["flops_per_token"])
    out.table(
        ("part", "layers", "parameters", "share", "FLOPs per token", "share"),
        [_row(part, *totals) for part in (*about["parts"], _total(about))],
    )
    out.say(f"counted at a context of {about['context']}, forward and backward")
    if about["active_params"] < about["params"]:
        out.say(f"{about['active_params']:,} parameters are active for a token")
    if any(not part["counted"] for part in about["parts"]):
        out.say("a part in brackets is not in the total: encoders are published without their head")
    memory = {name: human(size, "B") for name, size in about["training_bytes"].items()}
    out.say(
        "training in fp32 with Adam on one device: "
        + ", ".join(f"{name} {size}" for name, size in memory.items())
        + ", and the activations of its batch"
    )
    where = about["only_here"]
    out.say(
        f"only Headrace loads it: {where}" if where else f"Transformers' {about['architecture']}"
    )


def _inside(shape: dict[str, Any]) -> str:
    """What its layers are made of."""
    if recurrent := shape["recurrent"]:
        looks = recurrent["attention"]
        return f"{recurrent['cell']}" + (f" with {looks} attention" if looks else "")
    return (
        f"{shape['heads']} heads ({shape['kv_heads']} of keys and values) of {shape['head_dim']}, "
        f"feed-forward {shape['ffn_width']}"
    )


def _describe_part(part: Part) -> dict[str, Any]:
    return {
        "part": part.name,
        "layers": part.layers,
        "params": part.params,
        "flops_per_token": part.flops,
        "counted": part.role != "own head",
    }


def _total(about: dict[str, Any]) -> dict[str, Any]:
    counts = {name: about[name] for name in ("params", "flops_per_token")}
    return {"part": "total", "layers": "", "counted": True, **counts}


def _row(part: dict[str, Any], params: int, flops: float) -> tuple[str, ...]:
    count = f"{part['params']:,}" if part["counted"] else f"({part['params']:,})"
    count = count.rjust(len(f"{params:,}"))
    share = f"{part['params'] / params:.1%}" if part["counted"] else ""
    work = part["flops_per_token"]
    return (
        part["part"],
        str(part["layers"]),
        count,
        share,
        human(work) if work else "",
        f"{work / flops:.1%}" if work else "",
    )
