"""Deduplicates an artifact in a process of its own, which kills itself before its n-th file.

python dedup_driver.py ARTIFACT N
"""

import os
import signal
import sys
from pathlib import Path

from cluster.artifact import Artifact
from cluster.stage import build
from cluster.store import Store
from tasks.data import blocks
from tasks.data.dedup import DedupSettings, dedup
from tasks.data.deduplication import candidates, phases
from tests.data.deduplication.documents import PARCEL_BYTES


def main(artifact: str, last: str) -> None:
    """Build, dying with SIGKILL instead of writing file number `last`; 0 is never."""
    candidates.PARCEL_BYTES = PARCEL_BYTES
    written = []

    def mortal(write):  # type: ignore[no-untyped-def]
        def wrapped(*arguments):  # type: ignore[no-untyped-def]
            written.append(arguments)
            if len(written) == int(last):
                os.kill(os.getpid(), signal.SIGKILL)
            write(*arguments)

        return wrapped

    phases.save = mortal(phases.save)
    blocks._publish = mortal(blocks._publish)
    text = Artifact.load(Path(artifact))
    build(dedup, Store(), text=text, settings=DedupSettings(lines=True))


main(*sys.argv[1:])
