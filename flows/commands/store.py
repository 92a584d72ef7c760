"""ls, show, lineage, verify, gc: the artifact store."""

import logging
from pathlib import Path
from typing import Annotated, Any

import typer

from cluster.errors import BadInput
from flows.commands.options import ArtifactName, AsJson, Home
from flows.views.output import human, output

log = logging.getLogger("headrace.store")
Shown = Annotated[
    str, typer.Argument(help="an artifact, a model folder, or a preset such as gpt2-xl")
]


def ls(home: Home = None, as_json: AsJson = False) -> None:
    """List the artifacts."""
    from cluster.store import Store

    with output(as_json) as out:
        rows = [_row(a) for a in Store().artifacts()]
        out.result({"artifacts": rows})
        columns = ("artifact", "rows", "tokens", "bytes", "seconds", "created")
        shown = (
            (
                r["artifact"],
                r["rows"],
                r["tokens"],
                human(r["bytes"], "B"),
                r["seconds"],
                r["created"][:19].replace("T", " "),
            )
            for r in rows
        )
        out.table(columns, shown)


def _row(artifact: Any) -> dict[str, Any]:
    manifest = artifact.manifest
    return {
        "artifact": artifact.name,
        "stage": manifest.stage,
        "recipe": manifest.recipe,
        "fingerprint": manifest.fingerprint,
        "rows": manifest.rows,
        "tokens": manifest.tokens,
        "bytes": manifest.size,
        "seconds": manifest.seconds,
        "created": manifest.created,
        "path": str(artifact.path),
    }


def show(
    name: Shown,
    sample: Annotated[
        int | None, typer.Option(help="text of this sample of shards, a packing or a pretraining")
    ] = None,
    step: Annotated[int | None, typer.Option(help="what a pretraining saw at this step")] = None,
    context: Annotated[
        int | None, typer.Option(min=1, help="tokens of a sample of shards; default 256")
    ] = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """One artifact in full; also a model folder or a preset such as gpt2-xl: its architecture."""
    from flows.views.architecture import print_model
    from flows.views.manifest import show_manifest
    from flows.views.tokens import print_samples, print_shards

    with output(as_json) as out:
        if sample is not None or step is not None:
            seen = _seen(name, sample, step, context)
            out.result(seen)
            print_samples(out, seen["samples"])
            return
        found = _described(name)
        out.result(found)
        if "fingerprint" in found:
            show_manifest(out, found)
        if "longest_documents" in found:
            print_shards(out, found)
        if "parts" in found:
            print_model(out, found)


def _seen(name: str, sample: int | None, step: int | None, context: int | None) -> dict[str, Any]:
    from cluster.store import Store
    from flows.views.tokens import samples_seen

    if sample is not None and step is not None:
        raise BadInput("give --sample or --step, not both")
    artifact = Store().get(name)
    samples = samples_seen(artifact, sample, step, context)
    return {"artifact": artifact.name, "step": step, "samples": samples}


def _described(name: str) -> dict[str, Any]:
    """The architecture of a model, the manifest of an artifact, or both where it is both."""
    from cluster.artifact import brought
    from cluster.manifest import MANIFEST
    from cluster.store import Store
    from flows.views.architecture import config_of, describe_model
    from flows.views.tokens import describe_shards

    config = config_of(name)
    if config is not None and not (Path(name) / MANIFEST).is_file():
        return describe_model(name, config)
    artifact = Store().get(name)
    manifest = artifact.manifest.model_dump(mode="json", by_alias=True)
    config = config_of(str(brought(artifact.path)))
    more = {} if config is None else describe_model(artifact.name, config)
    if artifact.manifest.stage == "shards":
        more = describe_shards(artifact)
    return {**more, **manifest, "path": str(artifact.path)}


def lineage(
    name: ArtifactName,
    card: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="of a text or shards: write its dataset card, README.md"),
    ] = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """What an artifact was made from, down to its source files and their licences."""
    from flows.views.inspection import lineage_of

    with output(as_json) as out:
        graph = lineage_of(name)
        if card is not None:
            _write_card(name, card)
            graph["card"] = str(card)
        out.result(graph)
        shown = [n for n in graph["nodes"] if n["kind"] != "file"]
        rows = ((n["id"], n["kind"], _licenses(n), n.get("created", "")[:19]) for n in shown)
        out.table(("made from", "kind", "licences", "created"), rows)
        out.say(f"{len(graph['nodes']) - len(shown)} source files; --json lists them")


def _write_card(name: str, path: Path) -> None:
    from cluster.files import write_atomically
    from cluster.store import Store
    from tasks.report.dataset_card import render

    store = Store()
    write_atomically(path, render(store.get(name), store))


def _licenses(node: dict[str, Any]) -> str:
    """The licences of a source's rows, with their numbers, or that of a model taken in."""
    if node.get("license"):
        return str(node["license"])
    return ", ".join(f"{name} ({rows} rows)" for name, rows in node.get("licenses", {}).items())


def verify(
    name: Annotated[str | None, typer.Argument(help="an artifact; default: all of them")] = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Compare every byte with the manifests' hashes, and every manifest with its own."""
    from flows.views.inspection import damage

    with output(as_json) as out:
        found = damage(name)
        out.result(found)
        bad = found["bad"]
        intact = found["checked"] - sum(not key.startswith("runs/") for key in bad)
        out.say(f"{intact} of {found['checked']} artifacts intact")
        for lines in bad.values():
            for line in lines:
                out.say(f"  {line}")
        if bad:
            raise BadInput(f"{len(bad)} damaged: {', '.join(bad)}; {_remedy(list(bad))}")


def _remedy(damaged: list[str]) -> str:
    """What to do about damaged artifacts, by name, and records."""
    stages = sorted({name.split("/")[0] for name in damaged if not name.startswith("runs/")})
    ways = ["rebuild with `headrace run RECIPE " + " ".join(f"--rebuild {s}" for s in stages) + "`"]
    if len(stages) < len({name.split("/")[0] for name in damaged}):
        ways.append("remove the files under runs/")
    return ", ".join(ways if stages else ways[1:])


def gc(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only say what would go")] = False,
    keep: Annotated[int, typer.Option(min=1, help="runs of each recipe whose artifacts stay")] = 1,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Remove what no kept run needs: artifacts, leftovers of killed stages, scratch."""
    from cluster.collection import collect

    with output(as_json) as out:
        # Results of exams are small and belong to no run: the leaderboard keeps them.
        result = collect(keep=keep, dry_run=dry_run, spared={"exam", "steps"})
        out.result(result)
        verb = "would free" if dry_run else "freed"
        for path in result["removed"]:
            out.say(f"  {path}")
        out.say(f"{verb} {human(result['freed_bytes'], 'B')} in {len(result['removed'])} folders")
        for path, why in result["unreadable"].items():
            log.warning("artifacts were kept, as one may be needed: %s: %s", path, why)
