"""What was found in the store must fit together, checked when a run is planned.

A fingerprint is that of settings. A tokenizer that was rebuilt by force, or by an algorithm that
does not repeat bit for bit, may differ from the one that shards and models were made with.
"""

import hashlib

from cluster.artifact import Artifact, is_fetched
from cluster.errors import BadInput
from flows.plan.dag import Dag

FILE = "tokenizer.json"


def check_tokenizers(dag: Dag) -> None:
    """Raise BadInput when cached stages of a plan were made with different tokenizers.

    The message names both artifacts and the stage to rebuild: the later one.
    """
    found = [(node, sha) for node in dag if node.found and (sha := tokenizer_of(node.found))]
    for node, sha in found[1:]:
        first, expected = found[0]
        if sha != expected and first.found and node.found:
            raise BadInput(
                f"{node.found.name} was made with the tokenizer {sha[:12]}, and {first.found.name} "
                f"has {expected[:12]}; `--rebuild {node.spec.stage}` makes it anew"
            )


def tokenizer_of(artifact: Artifact) -> str | None:
    """The hash of the tokenizer that an artifact holds or was encoded by; None without one."""
    sha: str | None = artifact.manifest.facts.get("tokenizer_sha256")
    about = artifact.manifest.files.get(FILE)
    if sha is not None or about is None:
        return sha
    if len(about.blocks) == 1:  # the manifest has it, wherever the file is
        return about.blocks[0]
    if is_fetched(artifact.path):  # too large to fetch for this: compared when it is loaded
        return None
    return hashlib.sha256(artifact.file(FILE).read_bytes()).hexdigest()
