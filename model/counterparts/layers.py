"""What layers differ in, in `config.json`: windows, rotary positions, and which have experts."""

from collections.abc import Callable, Iterable

from model.config import ModelConfig
from model.counterparts.keys import Entry, File, follows
from model.counterparts.rotary import FULL, SLIDING


def turns(layer: int, file: File) -> bool:
    """Whether one of SmolLM3's layers has rotary positions."""
    said, each = file.get("no_rope_layers"), file.get("no_rope_layer_interval", 4)
    if said is not None and len(said) != file["num_hidden_layers"]:
        raise ValueError(f"no_rope_layers is {said!r}; it must say 0 or 1 for every layer")
    return bool((layer + 1) % each if said is None else said[layer])


ROTARY_LAYERS = Entry(
    lambda pattern, config: {
        "no_rope_layers": [int(config.layer_rope(n) is not None) for n in range(config.depth)]
    },
    lambda file: repeating(turns(layer, file) for layer in range(file["num_hidden_layers"])),
)
"""SmolLM3's `rope_layers`; the key is named for the others."""


def repeating(layers: Iterable[bool]) -> tuple[bool, ...]:
    """The shortest row that gives these, over and over."""
    every = tuple(layers)
    lengths = range(1, len(every) + 1)
    return next(every[:n] for n in lengths if all(x == every[i % n] for i, x in enumerate(every)))


def windows(
    slides: Callable[[int, File], bool],
    *,
    key: str = "sliding_window",
    missing: int | None = None,
    flag: str | None = None,
    typed: bool = True,
    reach: Callable[[int], int] = lambda said: said,
    say: Callable[[int], int] = lambda window: window,
) -> dict[str, Entry]:
    """`window` and `window_layers`: the `layer_types`, or where there are none what `slides` says.

    Files that are not `typed` never have them. There is no window where the key `flag` is not true.
    `reach` makes a window of what `key` says, and `say` the reverse.
    """

    def layers(file: File) -> list[bool]:
        types, count = file.get("layer_types") if typed else None, file["num_hidden_layers"]
        if types is None:
            return [slides(layer, file) for layer in range(count)]
        if len(types) != count or not set(types) <= {FULL, SLIDING}:
            raise ValueError(f"layer_types is {types!r}; it must be {count} of {FULL}, {SLIDING}")
        return [kind == SLIDING for kind in types]

    def read_window(file: File) -> int | None:
        said = file.get(key, missing) if flag is None or file.get(flag) else None
        return reach(said) if said is not None and any(layers(file)) else None

    def read_layers(file: File) -> tuple[bool, ...]:
        return (True,) if read_window(file) is None else repeating(layers(file))

    def write(window: int | None, config: ModelConfig) -> File:
        sliding = [config.layer_window(n) is not None for n in range(config.depth)]
        # Where layers are typed, Transformers wants a width even if none has a window.
        said: File = {} if window is None and not flag else {key: window and say(window)}
        said |= {flag: window is not None} if flag else {}
        types = [SLIDING if slid else FULL for slid in sliding]
        return said | ({"layer_types": types} if typed else {})

    return {"window": Entry(write, read_window), "window_layers": follows(read_layers)}
