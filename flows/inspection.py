"""What `show` and `lineage` know: models by folder or preset, and where an artifact came from."""

import json
from pathlib import Path
from typing import Any

from cluster.store import Artifact, Store
from model.config import ModelConfig
from model.flops import flops_per_token, parameter_count
from model.hub_config import parse
from model.presets import PRESETS, preset


def describe_model(name: str) -> dict[str, Any] | None:
    """Shape, parameters and FLOPs per token of a preset or a model folder; None for other names."""
    config = _config(name)
    if config is None:
        return None
    return {
        "name": name,
        "params": parameter_count(config),
        "flops_per_token": flops_per_token(config, config.context),
        "context": config.context,
        "shape": vars(config),
    }


def _config(name: str) -> ModelConfig | None:
    if name in PRESETS:
        return preset(name)
    folder = Path(name)
    if (folder / "config.json").is_file() and not (folder / "artifact.json").is_file():
        return parse(json.loads((folder / "config.json").read_text()))
    return None


def lineage_of(name: str) -> dict[str, Any]:
    """The graph of an artifact's ancestors: `nodes` and `edges` (from what was made to its input).

    Leaves are the source files, with content hash and licence, that the `read` stage recorded.
    """
    store = Store()
    artifacts = store.lineage(store.get(name))
    names = {a.fingerprint: a.name for a in artifacts}
    nodes: list[dict[str, Any]] = []
    edges: list[dict[str, str]] = []
    for artifact in artifacts:
        nodes.append(_artifact_node(artifact))
        edges += _edges(artifact, names)
        for source in artifact.manifest.facts.get("sources", []):
            nodes.append({"id": source["path"], "kind": "source", **source})
            edges.append({"from": artifact.name, "to": source["path"], "as": "source"})
    return {"nodes": nodes, "edges": edges}


def _artifact_node(artifact: Artifact) -> dict[str, Any]:
    manifest = artifact.manifest
    return {
        "id": artifact.name,
        "kind": manifest.stage,
        "fingerprint": manifest.fingerprint,
        "created": manifest.created,
        "settings": manifest.settings,
        "path": str(artifact.path),
    }


def _edges(artifact: Artifact, names: dict[str, str]) -> list[dict[str, str]]:
    found = []
    for role, value in artifact.manifest.inputs.items():
        for fingerprint in [value] if isinstance(value, str) else value:
            target = names.get(fingerprint, f"(removed) {fingerprint[:8]}")
            found.append({"from": artifact.name, "to": target, "as": role})
    return found
