"""Reads a folder into a store in a process of its own, which can be killed or starved of disk.

python blocks_driver.py FOLDER [--die-after BLOCKS | --file-limit BYTES]
"""

import os
import resource
import signal
import sys
from pathlib import Path

from cluster.errors import BadInput
from cluster.stage import build
from cluster.store import Store
from tasks.data import blocks
from tasks.data.reading import intake
from tasks.data.reading.stage import ReadSettings, read

SMALL_BLOCK = 1


def main(folder: str, option: str = "", value: str = "0") -> None:
    """Build the artifact and print its folder, or the message of a BadInput."""
    intake.BLOCK_BYTES = SMALL_BLOCK  # every file is a block
    publish, done = blocks._publish, []

    def die_after(temporary: Path, final: Path) -> None:
        if len(done) == int(value):
            os.kill(os.getpid(), signal.SIGKILL)
        publish(temporary, final)
        done.append(final.name)

    if option == "--die-after":
        blocks._publish = die_after
    if option == "--file-limit":
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(value), resource.RLIM_INFINITY))
    try:
        settings = ReadSettings.model_validate({"sources": [{"path": folder}]})
        print(build(read, Store(), settings=settings).path)
    except BadInput as error:
        print(error)


main(*sys.argv[1:])
