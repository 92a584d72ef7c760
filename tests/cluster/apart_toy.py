"""A run on two nodes with homes of their own, started by `test_apart.py`; says what it saw.

python apart_toy.py FOLDER
"""

import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

from cluster import ray_session
from cluster.artifact import Artifact
from cluster.home import home
from cluster.settings import Settings
from cluster.stage import build, stage
from cluster.store import Draft, Store
from tasks.data.blocks import map_text, split_blocks
from tasks.data.ledger import Splitter
from tasks.data.text import read_table

BLOCKS, BLOCK_BYTES = 6, 64 << 20  # said to be large, so that workers are worth starting


class Nothing(Settings):
    pass


def note(what: str) -> None:
    """Who did what, in the test's folder: the toy's own, no home's."""
    with (Path(os.environ["HEADRACE_NOTES"])).open("a") as file:
        file.write(f"{what} {home().name}\n")


def make(number: int, rows: Splitter) -> None:
    note(f"make {number}")
    texts = [f"Text {number}.{row} of a block." for row in range(3)]
    columns = {"id": texts, "text": pa.array(texts, pa.large_string()), "source": ["toy"] * 3}
    columns |= {"origin": texts, "license": pa.nulls(3, pa.string())}
    rows.split(pa.table(columns).to_batches()[0], [None] * 3)


def keep(batches: Any, rows: Splitter) -> None:
    for batch in batches:
        note("keep")
        rows.split(batch, [None] * batch.num_rows)


@stage(version=1)
def spring(settings: Nothing, draft: Draft) -> None:
    """Rows, made block by block; the first time it fails when all blocks are there."""
    account = split_blocks(draft, list(range(BLOCKS)), make, [BLOCK_BYTES] * BLOCKS)
    if not (marker := Path(f"{os.environ['HEADRACE_NOTES']}.failed")).exists():
        marker.touch()
        raise RuntimeError("the node is lost")
    account.close(draft)


@stage(version=1)
def river(text: Artifact, settings: Nothing, draft: Draft) -> None:
    """The same rows, each block read where it is worked on."""
    map_text(text, draft, keep)


def made(root: Path, function: Any, inputs: dict[str, str]) -> str:
    store = Store(root)
    found = {key: store.open(name) for key, name in inputs.items()}
    return build(function, store, settings=Nothing(), **found).name


def main() -> None:
    import ray

    ray_session.start()
    task: Any = ray.remote(num_cpus=0, max_retries=0)(made)
    first, second = (task.options(resources={name: 0.1}) for name in ("one", "two"))
    try:
        ray.get(first.remote(home(), spring, {}))
    except Exception as error:
        assert "the node is lost" in str(error)
    name = ray.get(second.remote(home(), spring, {}))
    name = ray.get(first.remote(home(), river, {"text": name}))
    rows = read_table(Store().open(name))["id"].to_pylist()
    print(json.dumps({"rows": rows, "host": socket.gethostname()}))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    import apart_toy

    apart_toy.main()
