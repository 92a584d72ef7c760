"""Variants of a recipe: every combination of the values of its `over`.

headrace sweep quickstart --over pretrain.optimizer.learning_rate=0.001,0.003 --over model.depth=2,3
"""

import itertools
from collections.abc import Iterator
from typing import Any

from cluster.errors import BadInput
from flows.recipe import Recipe, apply_override, read_yaml, validate

Values = dict[str, Any]


def read_over(text: str) -> tuple[str, tuple[Any, ...]]:
    """`a.b=1,2,3` as key and values; values are YAML. Raises BadInput for another form."""
    key, equals, values = text.partition("=")
    if not equals or not key.strip() or not values.strip():
        raise BadInput(f"--over {text}: write it as key=value,value, for example model.depth=2,3")
    return key.strip(), tuple(read_yaml(f"[{values}]", f"--over {text}"))


def variants(recipe: Recipe) -> Iterator[tuple[Values, Recipe]]:
    """Each combination with the recipe it makes. Raises BadInput for an unknown key or value."""
    plain = recipe.model_dump(mode="json", exclude_unset=True, exclude={"over"})
    for combination in itertools.product(*recipe.over.values()):
        values = dict(zip(recipe.over, combination, strict=True))
        made = {key: _copied(value) for key, value in plain.items()}
        for key, value in values.items():
            apply_override(made, f"{key}={value}")
        yield values, validate(made, f"{recipe.name} with {label(values)}")


def label(values: Values) -> str:
    """The values that tell a variant apart: `learning_rate=0.001,depth=2`."""
    return ",".join(f"{key.split('.')[-1]}={value}" for key, value in values.items())


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(inner) for key, inner in value.items()}
    return [_copied(inner) for inner in value] if isinstance(value, list) else value
