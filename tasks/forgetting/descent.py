"""What descends from what: by the inputs of artifacts, and by the names of others in settings."""

from collections.abc import Collection, Iterator, Sequence

from cluster.artifact import Artifact
from cluster.manifest import parents
from cluster.settings import texts


def descendants(artifacts: Sequence[Artifact], roots: Collection[str]) -> list[Artifact]:
    """The artifacts with these fingerprints and all that was made from them, ancestors first."""
    known = {name for a in artifacts if a.fingerprint in roots for name in named(a)}
    found: dict[str, Artifact] = {}
    size = -1
    while size < len(found):  # a few rounds: an artifact may be older than what it was made from
        size = len(found)
        for one in artifacts:
            if one.fingerprint in roots or any(name in known for name in mentioned(one)):
                found[one.fingerprint] = one
                known |= named(one)
    return _in_order(list(found.values()))


def named(artifact: Artifact) -> set[str]:
    """What stands for an artifact among the settings and inputs of another."""
    return {artifact.fingerprint, artifact.name}


def mentioned(artifact: Artifact) -> Iterator[str]:
    """Every text in the inputs and settings of an artifact."""
    yield from parents(artifact.manifest)
    yield from texts(artifact.manifest.settings)


def _in_order(found: Sequence[Artifact]) -> list[Artifact]:
    """Each after all that it was made from."""
    done: dict[str, Artifact] = {}
    waiting = list(found)
    while waiting:
        left = {name for one in waiting for name in named(one)}
        ready = [a for a in waiting if not (left & set(mentioned(a))) - named(a)]
        assert ready, "what an artifact is made from was not made from it"
        done |= {a.fingerprint: a for a in ready}
        waiting = [a for a in waiting if a.fingerprint not in done]
    return list(done.values())
