"""The weights that a training ends with, in files of which a process can hold one.

weights.safetensors                                          where one file has room
weights-00001.safetensors, .., weights.safetensors.index.json    where it has not
"""

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.files import write_atomically
from cluster.handover import obtain, publish
from tasks.training.job import WEIGHTS

if TYPE_CHECKING:
    from torch import Tensor

    from tasks.training.state import Read

INDEX = f"{WEIGHTS}.index.json"
LARGEST = 5_000_000_000
"""Bytes of a file, and so of main memory while weights are gathered one by one."""


def write(named: "Iterable[tuple[str, Tensor]]", folder: Path, leads: bool) -> None:
    """Write named weights as they come; of ranks that gather them together one leads and writes.
    What is read first, the index or the only file, gets its name last.
    """
    places: dict[str, str] = {}
    for number, held in enumerate(_batches(named, leads), 1):
        places |= _write(held, folder, f"weights-{number:05d}.safetensors")
    written = sorted(set(places.values()))
    if len(written) == 1:
        (folder / INDEX).unlink(missing_ok=True)
        (folder / written[0]).replace(folder / WEIGHTS)
        publish(folder / WEIGHTS)
    elif written:
        publish(*(folder / name for name in written))
        write_atomically(folder / INDEX, json.dumps({"weight_map": places}))
        publish(folder / INDEX)


def _batches(named: "Iterable[tuple[str, Tensor]]", leads: bool) -> "Iterator[dict[str, Tensor]]":
    """Copies of as many weights as a file has room for; none on ranks that do not lead."""
    held: dict[str, Tensor] = {}
    for name, tensor in named:
        if not leads:
            continue
        if held and sum(one.nbytes for one in held.values()) + tensor.nbytes > LARGEST:
            yield held
            held = {}
        # What is gathered is given back when the next one is.
        held[name] = tensor.detach().to("cpu", copy=True).contiguous()
    if held:
        yield held


def files(folder: Path) -> list[Path]:
    """The files that were written, the index too; brought to this node where it is another."""
    if obtain(folder / INDEX):
        names = sorted(set(json.loads((folder / INDEX).read_text())["weight_map"].values()))
        return [*obtain(*(folder / name for name in names)), folder / INDEX]
    return obtain(folder / WEIGHTS)


def reader(folder: Path) -> "Read":
    """Reads the weights in a folder by name. Their files are mapped: no memory is taken by what is
    not looked at.
    """
    from safetensors import safe_open

    opened = [safe_open(path, "pt") for path in files(folder) if path.suffix == ".safetensors"]
    places = {name: file for file in opened for name in file.keys()}  # noqa: SIM118

    def read(name: str) -> "Tensor":
        return places[name].get_tensor(name)

    return read


def _write(held: "dict[str, Tensor]", folder: Path, name: str) -> dict[str, str]:
    """Write one file; where each weight is."""
    from safetensors.torch import save_file

    save_file(held, folder / name)
    with (folder / name).open("rb") as file:
        os.fsync(file.fileno())
    return dict.fromkeys(held, name)
