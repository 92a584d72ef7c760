"""What an undisturbed run makes, to hold the result of a disturbed one against."""

from cluster.artifact import Artifact
from cluster.manifest import FileRecord

TIMED = {"metrics.jsonl"}  # rows that say how long a step took


def content(artifact: Artifact) -> dict[str, FileRecord]:
    """What a stage made, file by file, but for those in which times stand."""
    return {name: kept for name, kept in artifact.manifest.files.items() if name not in TIMED}
