"""ls, show, lineage, verify, gc: the artifact store."""

from typing import Annotated, Any

import typer

from cluster.errors import BadInput
from flows.commands.options import ArtifactName, AsJson, Home
from flows.output import human, output


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
        "bytes": sum(record.size for record in manifest.files.values()),
        "seconds": manifest.seconds,
        "created": manifest.created,
        "path": str(artifact.path),
    }


def show(name: ArtifactName, home: Home = None, as_json: AsJson = False) -> None:
    """One artifact in full; also a model folder or a preset such as gpt2-xl."""
    from rich.pretty import pprint

    from cluster.store import Store
    from flows.inspection import describe_model

    with output(as_json) as out:
        found = describe_model(name)
        if found is None:
            artifact = Store().get(name)
            found = artifact.manifest.model_dump(mode="json", by_alias=True)
            found["path"] = str(artifact.path)
        out.result(found)
        if not as_json:
            pprint(found, expand_all=True, max_length=12, max_string=160)


def lineage(name: ArtifactName, home: Home = None, as_json: AsJson = False) -> None:
    """What an artifact was made from, down to its source files and their licences."""
    from flows.inspection import lineage_of

    with output(as_json) as out:
        graph = lineage_of(name)
        out.result(graph)
        shown = [n for n in graph["nodes"] if n["kind"] != "file"]
        rows = ((n["id"], n["kind"], _licenses(n), n.get("created", "")[:19]) for n in shown)
        out.table(("made from", "kind", "licences", "created"), rows)
        out.say(f"{len(graph['nodes']) - len(shown)} source files; --json lists them")


def _licenses(node: dict[str, Any]) -> str:
    """The licences of a source's rows, with their numbers."""
    return ", ".join(f"{name} ({rows} rows)" for name, rows in node.get("licenses", {}).items())


def verify(
    name: Annotated[str | None, typer.Argument(help="an artifact; default: all of them")] = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Read every byte and compare it with the manifests' hashes."""
    from cluster.artifact import faults
    from cluster.store import Store

    with output(as_json) as out:
        store = Store()
        chosen = [store.get(name)] if name else store.artifacts()
        bad = {a.name: found for a in chosen if (found := faults(a))}
        out.result({"ok": not bad, "checked": len(chosen), "bad": bad})
        out.say(f"{len(chosen) - len(bad)} of {len(chosen)} artifacts intact")
        for lines in bad.values():
            for line in lines:
                out.say(f"  {line}")
        if bad:
            stages = sorted({key.split("/")[0] for key in bad})
            raise BadInput(
                f"{len(bad)} damaged: {', '.join(bad)}; rebuild with `headrace run RECIPE "
                + " ".join(f"--rebuild {stage}" for stage in stages)
                + "`"
            )


def gc(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only say what would go")] = False,
    keep: Annotated[int, typer.Option(min=1, help="runs of each recipe whose artifacts stay")] = 1,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Remove what no kept run needs: artifacts, leftovers of killed stages, scratch."""
    from cluster.collection import collect

    with output(as_json) as out:
        result = collect(keep=keep, dry_run=dry_run)
        out.result(result)
        verb = "would free" if dry_run else "freed"
        for path in result["removed"]:
            out.say(f"  {path}")
        out.say(f"{verb} {human(result['freed_bytes'], 'B')} in {len(result['removed'])} folders")


def register(app: typer.Typer) -> None:
    """Add these commands to the application."""
    for command in (ls, show, lineage, verify, gc):
        app.command()(command)
