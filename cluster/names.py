"""Names that others gave, held to the folder that they are of.

They come in listings, archives, manifests, recipes and commands; one such as `../../.ssh/config`
would lead whoever reads or writes below a folder out of it.
"""

import os
from pathlib import Path, PurePosixPath

from cluster.errors import BadInput


def leads_out(name: str) -> bool:
    """Whether a name is not one of something below a folder: empty, absolute, with `..`, or what
    some system would take for that.
    """
    parts = PurePosixPath(name).parts
    odd = "\\" in name or "\0" in name or name[1:2] == ":"
    return not parts or ".." in parts or name.startswith("/") or odd


def inside(folder: Path, name: str) -> Path:
    """The path of a name below a folder. Raises BadInput for one that leads out of it, through
    whatever symbolic links there are.
    """
    path = folder / name
    if leads_out(name) or not _real(path).is_relative_to(_real(folder)):
        raise BadInput(
            f"the name {name!r} leads out of {folder}: nothing is read or written there; take it "
            "out of what gave it, a listing, a manifest, a recipe or a command"
        )
    return path


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))
