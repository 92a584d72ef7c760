"""What `lineage` and `verify` know: where an artifact came from, and what is damaged."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cluster.artifact import Artifact, faults, misplaced
from cluster.manifest import named_inputs
from cluster.runs import survey
from cluster.store import Store


def damage(name: str | None = None) -> dict[str, Any]:
    """What `verify` finds by reading every byte of all artifacts and records, or of one artifact:
    how many were `checked`, and of each that is `bad` what is wrong.
    """
    store = Store()
    if name:
        artifacts, broken = [store.get(name)], dict[Path, str]()
    else:
        artifacts, broken = store.survey()
    bad = {a.name: found for a in artifacts if (found := misplaced(a) + faults(a))}
    runs, lost = ([], dict[Path, str]()) if name else survey(store.root)
    for path, why in (broken | lost).items():
        bad[f"{path.parent.name}/{path.name}"] = [why if str(path) in why else f"{path}: {why}"]
    checked = len(artifacts) + len(broken)
    return {"ok": not bad, "checked": checked, "records": len(runs) + len(lost), "bad": bad}


def lineage_of(name: str) -> dict[str, Any]:
    """The graph of an artifact's ancestors: `nodes` and `edges` (from what was made to its input).

    Below the `read` stage are its sources, and below each the files that rows came from, with the
    licences and the number of those rows.
    """
    store = Store()
    artifacts = store.lineage(store.get(name))
    names = {a.fingerprint: a.name for a in artifacts}
    nodes: list[dict[str, Any]] = []
    edges: list[dict[str, str]] = []
    for artifact in artifacts:
        nodes.append(_artifact_node(artifact))
        edges += _edges(artifact, names)
        if artifact.manifest.stage == "read":
            for node, parent in _sources(artifact):
                nodes.append(node)
                edges.append({"from": parent, "to": node["id"], "as": node["kind"]})
    return {"nodes": nodes, "edges": edges}


def _sources(read: Artifact) -> Iterator[tuple[dict[str, Any], str]]:
    """The sources of a text artifact and their files, each with the id of the node above it."""
    from tasks.data.text import read_batches

    rows: Counter[tuple[str, str, str | None]] = Counter()
    for batch in read_batches(read, columns=["source", "origin", "license"]):
        for row in batch.to_pylist():
            file = re.sub(r":\d+$", "", row["origin"])
            rows[row["source"], file, row["license"]] += 1
    for source in read.manifest.facts["sources"]:
        yield {**source, "id": source["label"], "kind": "source"}, read.name
    for (source, file, license), count in rows.items():
        node = {"id": f"{source}/{file}", "kind": "file", "license": license, "rows": count}
        yield node, source


def _artifact_node(artifact: Artifact) -> dict[str, Any]:
    manifest = artifact.manifest
    return {
        "id": artifact.name,
        "kind": manifest.stage,
        "fingerprint": manifest.fingerprint,
        "created": manifest.created,
        "settings": manifest.settings,
        "path": str(artifact.path),
        **({"license": manifest.facts["license"]} if manifest.stage == "adopt" else {}),
    }


def _edges(artifact: Artifact, names: dict[str, str]) -> list[dict[str, str]]:
    return [
        {"from": artifact.name, "to": names.get(one, f"(removed) {one[:8]}"), "as": role}
        for role, one in named_inputs(artifact.manifest.inputs)
    ]
