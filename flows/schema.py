"""The recipe's JSON schema, for editors: completion, descriptions, and faults as one types."""

from typing import Any

from flows.recipe import Recipe

NUMBERS = {"integer": r"^[+-]?\d[\d_]*$", "number": r"^[+-]?(\d[\d_]*)?\.?\d+([eE][+-]?\d+)?$"}


def recipe_schema() -> dict[str, Any]:
    """What `flows.recipe.validate` takes, as JSON Schema (draft 2020-12).

    Some readers of YAML take `1_000_000` or `1e-3` for text: numbers may be text of that form.
    """
    schema: dict[str, Any] = _loosened(Recipe.model_json_schema())
    sources = schema["properties"]["sources"]
    sources["items"] = {"anyOf": [{"type": "string"}, sources["items"]]}  # a bare path will do
    # A recipe that trains on no text needs none.
    trains_none = {"properties": {"pretrain": {"type": "null"}}, "required": ["pretrain"]}
    schema["anyOf"] = [{"required": ["sources"]}, trains_none]
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return dialect | schema | {"title": "Headrace recipe"}


def _loosened(part: Any) -> Any:
    if isinstance(part, list):
        return [_loosened(inner) for inner in part]
    if not isinstance(part, dict):
        return part
    found = {key: _loosened(value) for key, value in part.items()}
    if isinstance(kind := found.get("type"), str) and kind in NUMBERS:
        found |= {"type": [kind, "string"], "pattern": NUMBERS[kind]}
    return found
