"""An erasure, from plan to certificate: nothing old goes before all that takes its place is proved.

1. Follow the rows (`tasks.forgetting.trace`), decide what becomes of each artifact (`changes`).
2. Note the erasure: from here on `read` leaves the rows out, here and in every later run.
3. Write text and shards again, put checkpoints where training looks for them.
4. Carry out the runs again that made what is affected, oldest first: what they need is there, or is
   replayed, or built.
5. Compare every byte of what is new with its manifest, look for pieces of the texts in all of it.
6. Remove what is old, and certify. Killed anywhere, the same command goes on.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.artifact import Artifact, faults
from cluster.environment import given
from cluster.errors import BadInput, StageFailed
from cluster.manifest import FETCHED
from cluster.runs import RunRecord, records
from cluster.store import Spec, Store
from cluster.url_secrets import hidden
from flows.end_to_end import plan
from flows.plan.dag import Dag
from flows.plan.price import price
from flows.recipe import Recipe
from tasks.data.reading.hashes import SOURCES, FoundSource
from tasks.forgetting import grams
from tasks.forgetting.asked import Asked
from tasks.forgetting.certificate import certificate, replayed_share, write_certificate
from tasks.forgetting.changes import MADE_HERE, REPLAYED, TRAINED, Change, changes, settled, swapped
from tasks.forgetting.journal import Journal, journals
from tasks.forgetting.keeping import erasure_of
from tasks.forgetting.making import make, pack_again, rewind
from tasks.forgetting.removal import places, remove
from tasks.forgetting.scrubbing import scrub
from tasks.forgetting.trace import Trace, follow

log = logging.getLogger("headrace.erase")
NO_TEXT = "it holds a piece of the text, and is neither text nor a database: remove it by hand"
IN_A_NAME = "its name has a piece of the text, and stands wherever the source does: rename it"
Run = Callable[[Dag, Recipe, str], Mapping[str, Any]]
"""Carries out a plan of a recipe to a goal; the record of the run."""


@dataclass(frozen=True)
class Erasing:
    """What there is to do: what was found, and what becomes of each artifact. The journal is not
    written before it is `begun`.
    """

    journal: Journal
    trace: Trace
    changes: Sequence[Change]
    store: Store

    @property
    def lost(self) -> list[Change]:
        """The trainings that begin at their first step, as they cannot be replayed."""
        return [one for one in self.changes if one.way == TRAINED]

    def begun(self) -> None:
        """Let the erasure hold, for this and every later run."""
        self.journal.save()
        self.journal.erasure.save()


def prepared(asked: Asked) -> Erasing | Journal:
    """What there is to do for what is asked: as it was begun, where it was cut short. The journal
    alone where all that is left to do is to remove what is old, or nothing.

    Raises BadInput where no row holds what is asked, and for an erasure that was cut short before.
    """
    store = Store()
    known = journals()
    mine = [one for one in known if one.asked == asked.digest(one.erasure.salt)]
    if other := [one for one in known if one.state != "done" and one not in mine]:
        raise BadInput(
            f"erasure {other[0].erasure.id} was cut short: give its command again first; it goes on"
        )
    if mine and mine[-1].state == "removing":
        return mine[-1]
    trace = follow(asked, store)
    if not trace.found.rows and mine:
        return mine[-1]
    if not trace.found.rows:
        raise BadInput(
            "no row that `read` took in holds it; `headrace trace` looks in the same way"
        )
    if mine and mine[-1].state == "making":
        journal = mine[-1]
    else:
        reads = [a for a in store.artifacts() if a.manifest.stage == "read"]
        made = erasure_of(trace.found, reads)
        ids = tuple(sorted(trace.found.rows))
        journal = Journal(asked=asked.digest(made.salt), erasure=made, ids=ids)
    return Erasing(journal, trace, changes(trace, journal.erasure), store)


def what_it_takes(erasing: Erasing) -> dict[str, Any]:
    """The plan: what becomes of each artifact, the steps of trainings that are made again, and
    what that takes; `unplanned` are the runs of which it is not known yet.
    """
    told, total = erasing.trace.told(), dict.fromkeys(("seconds", "cost", "bytes_written"), 0.0)
    ways = {change.spec.fingerprint: change for change in erasing.changes}
    unplanned = []
    for record in _affected(erasing):
        try:
            dag = planned_again(record, Recipe.model_validate(record.recipe), erasing)
        except BadInput:
            unplanned.append(record.id)
            continue
        priced = price(dag, Recipe.model_validate(record.recipe).placement)
        for node in dag:
            if node.found is None and (change := ways.pop(node.spec.fingerprint, None)):
                for key, share in _shares(change).items():
                    total[key] += share * (priced.of(node.name)[key] or 0.0)
    found = {"rows": told["rows"], "samples": len(told["samples"]), "models": told["models"]}
    return {
        "found": found,
        "changes": [change.told() for change in erasing.changes],
        "replayed": replayed_share(erasing.changes),
        **{key: float(f"{value:.4g}") for key, value in total.items()},
        "unplanned": unplanned,
    }


def _shares(change: Change) -> dict[str, float]:
    """What part of a stage's time, cost and bytes is needed to make what takes its place."""
    work = 0.0 if change.way in MADE_HERE else 1.0
    if change.way == REPLAYED:
        work = (change.steps - change.step) / change.steps
    return {"seconds": work, "cost": work, "bytes_written": 1.0}


def _affected(erasing: Erasing) -> list[RunRecord]:
    """The runs that used something affected, the oldest first."""
    prints = erasing.trace.affected.keys()
    every = records(erasing.store.root)
    return [one for one in every if any(stage.fingerprint in prints for stage in one.stages)]


def carried_out(erasing: Erasing, asked: Asked, run: Run) -> Journal:
    """Make all that takes the place of what is affected, prove it, and leave what to remove.

    Raises StageFailed when a run fails, or what is new is damaged or holds a piece of the texts:
    nothing old is removed then.
    """
    started, store = time.monotonic(), erasing.store
    erasing.begun()
    ids = erasing.journal.ids
    for change in erasing.changes:
        if change.way in MADE_HERE:
            make(change, ids, store)
        elif change.spec.stage == "packing" and not change.why:
            pack_again(change, store)
    for change in erasing.changes:
        if change.way == REPLAYED and not store.find(change.spec.stage, change.spec.fingerprint):
            rewind(change, store)
    instead: dict[str, Spec] = {}
    for dag, recipe, then in again(erasing, instead):
        record = run(dag, recipe, then.goal)
        if (record["status"], then.status) == ("failed", "completed"):
            raise StageFailed(
                f"run {record['id']} failed while it made again what the rows were in: nothing old "
                "was removed; mend it (`headrace logs`) and give the same command again"
            )
    wanted = erased_runs(erasing)
    named = naming(erasing, wanted)
    wanted -= set().union(*named.values())
    made = proved(erasing, wanted, instead)
    told = certificate(erasing.journal, asked, erasing.trace, settled(erasing.changes, made), made)
    told["places"] = places([change.old.name for change in erasing.changes], store)
    told["scrubbed"], left = scrub(store.root, wanted, _kept_apart(store))
    told["remains"] += [{"what": path, "why": NO_TEXT} for path in left]
    told["remains"] += [{"what": path, "why": IN_A_NAME} for path in named]
    told["remains"] += [*too_short(erasing), *elsewhere()]
    told["seconds"] = round(time.monotonic() - started, 3)
    return erasing.journal.now("removing", **told)


def finished(journal: Journal) -> dict[str, Any]:
    """Remove what is old, and certify; what was certified where that is done already."""
    if journal.state == "removing":
        remove(journal.certificate["places"], Store())
        journal = journal.now("done", **write_certificate(journal.certificate))
    return journal.certificate


def again(erasing: Erasing, instead: dict[str, Spec]) -> Iterator[tuple[Dag, Recipe, RunRecord]]:
    """The runs that made what is affected, each planned when those before it are done, if it makes
    something that is not there yet: on the sources as they were, without the rows. One that cannot
    be planned any more is left out: what only it made has nothing to take its place. What this
    version of Headrace makes under another identity is noted in `instead`, by the old fingerprint.
    """
    store = erasing.store
    ours = {change.old.fingerprint: change.spec for change in erasing.changes}
    wanted = {spec.fingerprint for spec in ours.values()}
    paths = {str(c.old.path): str(store.folder(c.spec)) for c in erasing.changes}
    for record in _affected(erasing):
        recipe = Recipe.model_validate(swapped(record.recipe, paths))
        try:
            dag = planned_again(record, recipe, erasing)
        except BadInput as error:
            log.warning("run %s cannot be carried out again: %s", record.id, error)
            continue
        nodes = {node.name: node for node in dag}
        lacking = {
            stage.fingerprint: nodes[stage.name].spec
            for stage in record.stages
            if stage.name in nodes and stage.fingerprint in ours.keys() - instead.keys()
            if not store.find(stage.stage, ours[stage.fingerprint].fingerprint)
        }
        missing = {spec.fingerprint for spec in lacking.values()} | wanted
        if any(not node.found and node.spec.fingerprint in missing for node in dag):
            yield dag, recipe, record
        instead |= {old: s for old, s in lacking.items() if s.fingerprint not in wanted}


def planned_again(record: RunRecord, recipe: Recipe, erasing: Erasing) -> Dag:
    """The plan of a run, as if its sources were what they were; without the rows."""
    dag = Dag(recipe.name, Store())
    specs = {change.old.fingerprint: change.spec.settings for change in erasing.changes}
    for stage in record.stages:
        read = erasing.store.find("read", stage.fingerprint) if stage.stage == "read" else None
        if read is not None:
            settings = specs.get(read.fingerprint, read.manifest.settings)
            sources = _sources(recipe, read, settings["settings"]["sources"])
            if sources is not None:
                dag.contents = {(SOURCES, recipe.sources): sources}
    return plan(record.goal, dag, recipe)


def _sources(
    recipe: Recipe, read: Artifact, identities: Sequence[Mapping[str, Any]]
) -> tuple[FoundSource, ...] | None:
    """The sources of a `read` artifact, by what was in them; None where the recipe has others."""
    asked = list(recipe.sources)
    found = []
    for told, identity in zip(read.manifest.facts["sources"], identities, strict=True):
        same = [s for s in asked if s.path == told["path"] and s.identity() == identity["source"]]
        if not same:
            return None
        asked.remove(same[0])
        known = {key: identity[key] for key in ("name", "content", "erased")}
        found.append(FoundSource(source=same[0], **known))
    return tuple(found) if not asked else None


def erased_runs(erasing: Erasing) -> set[str]:
    """The runs of words of the erased texts that no kept row has."""
    found = erasing.trace.found
    reads = [a for a in erasing.store.artifacts() if a.manifest.stage == "read"]
    texts = [text for every in found.texts.values() for text in every]
    return grams.own_grams(texts, reads, set(found.rows))


def too_short(erasing: Erasing) -> Iterator[dict[str, str]]:
    """Rows of too few words to be looked for."""
    for id, texts in erasing.trace.found.texts.items():
        if not grams.own_grams(texts, (), ()):
            why = f"fewer than {grams.SHORTEST} words: logs, pages and databases are not searched"
            yield {"what": f"the text of row {id}", "why": why}


def elsewhere() -> Iterator[dict[str, str]]:
    """Services that are not this home's, into which nobody looks."""
    for name in ("MLFLOW_TRACKING_URI", "PREFECT_API_URL"):
        if address := given(name):
            why = "a service of yours, which is not looked through: it may show samples of text"
            yield {"what": hidden(f"{name}={address}"), "why": why}


def _kept_apart(store: Store) -> list[Path]:
    """Folders of a home that are not scrubbed: artifacts, which are immutable and searched or
    removed as a whole, and what goes with them; copies of sources.
    """
    names = ("artifacts", FETCHED, "manifests", "work", "erasures", "downloads")
    return [store.root / name for name in names]


def naming(erasing: Erasing, wanted: set[str]) -> dict[str, set[str]]:
    """The sources, by path, whose name has some of these runs of words."""
    sizes, found = grams.sizes_of(wanted), dict[str, set[str]]()
    for about in erasing.trace.affected.values():
        if about.artifact.manifest.stage == "read":
            for source in about.artifact.manifest.facts["sources"]:
                name = f"{source['path']} {source['label']}"
                found[source["path"]] = wanted & grams.grams(name, sizes)
    return {path: runs for path, runs in found.items() if runs}


def proved(erasing: Erasing, wanted: set[str], instead: Mapping[str, Spec]) -> dict[str, Artifact]:
    """What took an artifact's place, by the old fingerprint, every byte compared. Raises
    StageFailed when one is damaged, or holds what is to be gone.
    """
    made: dict[str, Artifact] = {}
    for change in erasing.changes:
        other = instead.get(change.old.fingerprint, change.spec)
        specs = (change.spec, other)
        found = (erasing.store.find(spec.stage, spec.fingerprint) for spec in specs)
        if new := next((one for one in found if one), None):
            if wrong := faults(new):
                raise StageFailed(f"{new.name}, made again, is damaged: {wrong[0]}")
            made[change.old.fingerprint] = new
    if left := _holding(erasing.store, made, wanted):
        raise StageFailed(
            f"{left[0]} still holds a piece of the rows: nothing old was removed. Stages of your "
            "own that give rows other names keep their text; mend them, and run the same command"
        )
    return made


def _holding(store: Store, made: Mapping[str, Artifact], wanted: set[str]) -> list[str]:
    """The new artifacts that hold one of these runs of words."""
    held = [a.name for a in made.values() if grams.holders(a.path, wanted, ())]
    for artifact in made.values():
        if artifact.manifest.stage == "shards":
            tokenizer = store.find("tokenizer", str(artifact.manifest.inputs["tokenizer"]))
            if tokenizer and grams.shards_hold(artifact, tokenizer, wanted):
                held.append(artifact.name)
    return held
