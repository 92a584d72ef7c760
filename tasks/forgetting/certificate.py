"""What is certified of an erasure: what was asked and found, what was removed and what took its
place, with hashes before and after, and what remains and why. It has no text of the rows.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.files import write_atomically
from cluster.home import subfolder
from tasks.data.reading.hashes import content_hashes
from tasks.data.reading.settings import SourceSettings
from tasks.data.reading.sources import resolve
from tasks.forgetting.asked import Asked
from tasks.forgetting.changes import REPLAYED, TRAINED, Change
from tasks.forgetting.influences import influences
from tasks.forgetting.journal import Journal
from tasks.forgetting.keeping import sources_of
from tasks.forgetting.removal import manifest_hash
from tasks.forgetting.trace import Trace
from tasks.report.template import fill

View = dict[str, Any]
FOLDER = "erasures/certificates"
SHAPED = "what rows shaped without being in it stays: build its stage again to have it anew"


def certificate(
    journal: Journal,
    asked: Asked,
    trace: Trace,
    changes: Sequence[Change],
    made: Mapping[str, Artifact],
) -> View:
    """What is certified before anything is removed; `made` is what took an artifact's place, by the
    old fingerprint.
    """
    told = trace.told()
    new = {old: artifact.name for old, artifact in made.items()}
    return {
        "erasure": journal.erasure.id,
        "created": journal.erasure.created,
        "asked": asked.kind,
        "asked_sha256": journal.asked,
        "found": {
            "rows": told["rows"],
            "samples": len(told["samples"]),
            "models": told["models"],
            "unknown": told["unknown"],
        },
        "removed": [change.old.name for change in changes],
        "rebuilt": [
            change.told() | {"seconds": made[change.old.fingerprint].manifest.seconds}
            for change in changes
            if change.old.fingerprint in made
        ],
        "anew": trained_anew(changes, made),
        "hashes": [_hashes(change, made) for change in changes],
        "replayed": replayed_share(changes),
        "remains": remains(trace, changes, new),
    }


def replayed_share(changes: Sequence[Change]) -> View:
    """How many of the steps of affected trainings are made again."""
    trained = [change for change in changes if change.way in (REPLAYED, TRAINED)]
    steps, again = sum(c.steps for c in trained), sum(c.steps - c.step for c in trained)
    return {"steps": again, "of": steps, "share": round(again / steps, 4) if steps else 0.0}


def trained_anew(changes: Sequence[Change], made: Mapping[str, Artifact]) -> View:
    """What the trainings cost that had no checkpoint to go back to, runs of a sweep among them."""
    anew = [one for one in changes if one.way == TRAINED and one.old.fingerprint in made]
    seconds = sum(made[one.old.fingerprint].manifest.seconds for one in anew)
    steps = sum(one.steps for one in anew)
    return {"trainings": len(anew), "steps": steps, "seconds": round(seconds, 3)}


def remains(trace: Trace, changes: Sequence[Change], new: Mapping[str, str]) -> list[View]:
    """What still holds the rows or was shaped by them, and why."""
    found = [{"what": path, "why": why} for path, why in remaining_sources(trace)]
    names = {change.old.name: new.get(change.old.fingerprint) for change in changes}
    for one in influences(trace.affected):
        if (after := names[one["artifact"]]) and one["stage"] in ("tokenizer", "dedup", "grade"):
            found.append({"what": after, "why": f"{one['how']}; {SHAPED}"})
    for change in changes:
        if change.old.fingerprint not in new:
            why = "no run of this home makes it again: it was removed, and nothing took its place"
            found.append({"what": change.old.name, "why": why})
    return found


def remaining_sources(trace: Trace) -> Iterator[tuple[str, str]]:
    """The sources whose content is still the one that had the rows."""
    seen = set[str]()
    for fingerprint, labels in trace.found.labels.items():
        read = trace.affected[fingerprint].artifact
        told = read.manifest.facts["sources"]
        for source, about in zip(sources_of(read), told, strict=True):
            path = about["path"]
            if source["name"] in labels and path not in seen:
                seen.add(path)
                if why := _still(path, source["content"], source["source"]):
                    yield path, why


def _still(path: str, content: str, reading: Mapping[str, Any]) -> str | None:
    """Why a source may still hold the rows; None where it is gone."""
    if "://" in path and not path.startswith(("file://", "python://")):
        return "it lies elsewhere and may still have the rows; `read` leaves them out"
    try:
        settings = SourceSettings.model_validate({"path": path, **reading})
        same = content_hashes(resolve((settings,))) == [content]
    except BadInput:
        return None
    if same:
        return "the source has the rows as before; `read` leaves them out of every run"
    return "the source has changed since; if it still has the rows, `read` leaves them out"


def write_certificate(told: Mapping[str, Any]) -> dict[str, str]:
    """Write the certificate as JSON and as a page; the paths of both."""
    path = subfolder(FOLDER) / f"{told['erasure']}.json"
    page = path.with_suffix(".html")
    write_atomically(page, fill("certificate.html.j2", dict(told)))
    write_atomically(path, json.dumps(told, indent=1) + "\n")
    return {"certificate": str(path), "page": str(page)}


def _hashes(change: Change, made: Mapping[str, Artifact]) -> View:
    """Fingerprint and hash of the manifest, which has those of the files, before and after."""
    new = made.get(change.old.fingerprint)
    before = {"fingerprint": change.old.fingerprint, "manifest": manifest_hash(change.old)}
    after = None
    if new is not None:
        after = {"fingerprint": new.fingerprint, "manifest": manifest_hash(new)}
    return {
        "artifact": change.old.name,
        "becomes": new.name if new else None,
        "before": before,
        "after": after,
    }
