"""Filters an artifact on two workers, with a function that takes memory until it is stopped.

python memory_driver.py ARTIFACT; prints the error that ends it.
"""

import sys
from pathlib import Path

from cluster import ray_session
from cluster.artifact import Artifact
from cluster.placement import Placement
from cluster.stage import build
from cluster.store import Store
from tasks.data import blocks
from tasks.data.filtering.settings import FilterSettings
from tasks.data.filtering.stage import filter_text

HUNGRY = """
import time
def hungry(text):
    if "much" in text:
        held = []
        for _ in range(150):
            held.append(bytearray(b"x") * (32 << 20))
            time.sleep(0.01)
"""


def main(artifact: str) -> None:
    """Build on workers, however little text there is."""
    blocks.SMALL_BYTES = 0
    path = Path(artifact).with_name("mine.py")
    path.write_text(HUNGRY)
    limits = dict.fromkeys(FilterSettings().rules)
    settings = FilterSettings(custom=(f"{path}:hungry",), custom_seconds=60, limits=limits)
    ray_session.start()
    try:
        text, two = Artifact.load(Path(artifact)), Placement(data_workers=2)
        build(filter_text, Store(), raw=text, settings=settings, placement=two)
    except RuntimeError as error:
        print(error)
    finally:
        ray_session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
