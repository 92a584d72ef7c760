"""Rotary positions in `config.json`: the base, the stretch, and which layers and numbers turn.

Newer files keep them in `rope_parameters`, some for each kind of layer; older ones in keys beside
each other. Of what a file says twice, the same counts here as in Transformers.
"""

import math

from model.config import ModelConfig, Rope, RopeScaling
from model.counterparts.keys import Entry, File, follows

BOUNDS = {"llama3": ("low_freq_factor", "high_freq_factor"), "yarn": ("beta_slow", "beta_fast")}
"""What the two bounds of a rotary scaling are called."""
KINDS = ("default", "linear", *BOUNDS, "longrope")
FULL, SLIDING = "full_attention", "sliding_attention"
"""The kinds of layers: without a window, and with one."""
FIRST = "original_max_position_embeddings"


def rotary(
    theta: float = 10_000.0,
    *,
    key: str = "rope_theta",
    share: float | None = None,
    share_key: str = "partial_rotary_factor",
) -> dict[str, Entry]:
    """`rope_theta` and `rope_scaling`, with the `theta` of a file that says none in `key`.

    Where a `share` is given, that of a file without `share_key`, also `rotary_dim`.
    """

    def said(file: File) -> File:
        older = {"rope_theta": file.get(key), "partial_rotary_factor": file.get(share_key)}
        found = older | (file.get("rope_scaling") or file.get("rope_parameters") or {})
        if (part := found.get("partial_rotary_factor")) not in (None, 1) and share is None:
            raise ValueError(f"partial_rotary_factor is {part!r}; it must be 1")
        return found

    def dims(file: File) -> int | None:
        assert share is not None
        part, head = said(file).get("partial_rotary_factor"), _head_dim(file)
        turning = int(head * (share if part is None else part))
        return None if turning == head else turning

    def write_scaling(scaling: RopeScaling | None, config: ModelConfig) -> File:
        long = {FIRST: scaling.original_context} if scaling and scaling.short_factors else {}
        return {"rope_scaling": _write_scaling(scaling, config), **long}

    entries = {
        "rope_theta": Entry(
            lambda theta, config: {key: theta}, lambda file: said(file).get("rope_theta") or theta
        ),
        "rope_scaling": Entry(
            write_scaling,
            lambda file: _read_scaling(said(file), file),
        ),
    }
    if share is not None:
        entries["rotary_dim"] = Entry(
            lambda dim, config: {share_key: (dim or config.head_dim) / config.head_dim}, dims
        )
    return entries


def layered_rotary(
    theta: float,
    local: float,
    *,
    key: str,
    local_key: str | None = None,
    both: bool = False,
) -> dict[str, Entry]:
    """The same where layers with a window have parameters of their own, `window_rope_theta` too.

    `theta` and `local` are the bases that files mean which say none in `key` and `local_key`.
    Whether an older file's `rope_scaling` is for `both` kinds of layers, or those without window.
    """

    def said(file: File, kind: str) -> Rope:
        found: File = dict((file.get("rope_parameters") or {}).get(kind) or {})
        if kind == FULL or both:
            found |= file.get("rope_scaling") or {}
        name, otherwise = (key, theta) if kind == FULL else (local_key, local)
        base = found.get("rope_theta") or (name and file.get(name)) or otherwise
        return Rope(base, _read_scaling(found, file))

    def window_theta(file: File) -> float | None:
        full, sliding = said(file, FULL), said(file, SLIDING)
        if sliding.scaling is not None and sliding != full:
            raise ValueError(
                f"rope_parameters of {SLIDING} have rope_type {sliding.scaling.kind!r}; it must be "
                f"default, or all must be as in {FULL}"
            )
        return None if sliding == full else sliding.theta

    def write(theta: float, config: ModelConfig) -> File:
        stretch = _write_scaling(config.rope_scaling, config) or {"rope_type": "default"}
        full = {"rope_theta": theta, **stretch}
        own = {"rope_theta": config.window_rope_theta, "rope_type": "default"}
        sliding = full if config.window_rope_theta is None else own
        return {"rope_parameters": {FULL: full, SLIDING: sliding}}

    return {
        "rope_theta": Entry(write, lambda file: said(file, FULL).theta),
        "rope_scaling": follows(lambda file: said(file, FULL).scaling),
        "window_rope_theta": follows(window_theta),
    }


def _head_dim(file: File) -> int:
    return file.get("head_dim") or file["hidden_size"] // file["num_attention_heads"]


def _write_scaling(scaling: RopeScaling | None, config: ModelConfig) -> File | None:
    if scaling is None:
        return None
    said: File = {"rope_type": scaling.kind}
    if scaling.kind == "longrope":
        said |= {"short_factor": scaling.short_factors, "long_factor": scaling.long_factors}
    else:
        said["factor"] = scaling.factor
    if scaling.kind in BOUNDS:
        low, high = BOUNDS[scaling.kind]
        said |= {low: scaling.low_frequency_factor, high: scaling.high_frequency_factor}
    if scaling.kind != "linear":
        said[FIRST] = scaling.original_context
    if scaling.kind in ("yarn", "longrope"):
        said["attention_factor"] = scaling.attention_factor
    if scaling.kind == "yarn" and config.attention_scale is not None:
        # Scores are scaled by m^2 / sqrt(head_dim), m = 0.1 mscale_all_dim ln(factor) + 1.
        stretch = math.sqrt(config.attention_scale * math.sqrt(config.head_dim))
        said["mscale_all_dim"] = round(10 * (stretch - 1) / math.log(scaling.factor), 12)
    return said


def _read_scaling(rope: File, file: File) -> RopeScaling | None:
    """The stretch that rotary parameters describe, in the file that they are of."""
    kind = rope.get("rope_type", rope.get("type", "default"))
    kind = "longrope" if rope.get("short_factor") else kind
    if kind == "default":
        return None
    if kind == "linear":
        return RopeScaling(kind="linear", factor=rope["factor"])
    if kind not in KINDS:
        raise ValueError(f"rope_type is {kind!r}; it must be {', '.join(KINDS)}")
    if not rope.get("truncate", True):
        raise ValueError(f"truncate is {rope['truncate']!r}; it must be True")
    first: int = file.get(FIRST) or rope.get(FIRST) or file["max_position_embeddings"]
    factor = rope.get("factor") or file["max_position_embeddings"] / first
    if kind == "longrope":
        return RopeScaling(
            kind="longrope",
            original_context=first,
            attention_factor=rope.get("attention_factor") or _long_factor(factor, first),
            short_factors=tuple(rope["short_factor"]),
            long_factors=tuple(rope["long_factor"]),
        )
    low, high = BOUNDS[kind]
    return RopeScaling(
        kind=kind,  # pyrefly: ignore[bad-argument-type]
        factor=factor,
        low_frequency_factor=rope.get(low) or 1.0,
        high_frequency_factor=rope.get(high) or 32.0,
        original_context=first,
        attention_factor=_attention_factor(rope, factor) if kind == "yarn" else 1.0,
    )


def _long_factor(factor: float, first: int) -> float:
    return 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(first))


def _attention_factor(rope: File, factor: float) -> float:
    """YaRN's: given, or 0.1 m ln(factor) + 1, which DeepSeek divides by another such number."""
    given: float | None = rope.get("attention_factor")
    if given is not None:
        return given
    over, under = rope.get("mscale"), rope.get("mscale_all_dim")
    if over and under:
        return _mscale(factor, over) / _mscale(factor, under)
    return _mscale(factor, 1)


def _mscale(factor: float, m: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * m * math.log(factor) + 1


def _read_yarn_scale(file: File) -> float | None:
    rope: File = file.get("rope_scaling") or file.get("rope_parameters") or {}
    if not rope.get("mscale_all_dim"):
        return None
    head_dim: int = file["qk_nope_head_dim"] + file["qk_rope_head_dim"]
    return head_dim**-0.5 * _mscale(rope["factor"], rope["mscale_all_dim"]) ** 2


YARN_SCALE = follows(_read_yarn_scale)
"""DeepSeek's `attention_scale`, which grows with its rotary scaling."""
