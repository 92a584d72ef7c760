"""YAML of plain values, as recipes and `--set` have it."""

from typing import Any

import yaml

from cluster.errors import BadInput


def read_yaml(text: str, origin: str) -> Any:
    """YAML of plain values; a key given twice is refused rather than the first one dropped."""
    try:
        return yaml.load(text, Loader=_StrictLoader)  # noqa: S506 (a SafeLoader)
    except yaml.YAMLError as error:
        raise BadInput(f"{origin}: not valid YAML: {error}") from error


class _StrictLoader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key '{key}' is given twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)
