"""Deduplicates an artifact in a process of its own, which can be killed or starved of disk.

python dedup_driver.py ARTIFACT N [BYTES]: dies before its n-th file; no file may be longer.
"""

import os
import resource
import signal
import sys
from pathlib import Path

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.stage import build
from cluster.store import Store
from tasks.data import blocks
from tasks.data.deduplication import candidates, phases
from tasks.data.deduplication.stage import dedup
from tests.data.deduplication.documents import PARTITION_BYTES, SETTINGS


def main(artifact: str, last: str, most: str = "") -> None:
    """Build, dying with SIGKILL instead of writing file number `last`; 0 is never."""
    if most:
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(most), resource.RLIM_INFINITY))
    candidates.PARTITION_BYTES = PARTITION_BYTES
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
    try:
        build(dedup, Store(), text=text, settings=SETTINGS)
    except BadInput as error:
        print(error)


main(*sys.argv[1:])
