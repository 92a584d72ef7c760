"""Sources by name: which regular files a source is made of, in a fixed order.

Light on purpose: a cached run is planned from here in milliseconds.
"""

import glob
import itertools
import os
import stat
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

from pydantic import Field

from cluster.errors import BadInput
from cluster.settings import Settings, nearest

COMPRESSIONS = (".gz", ".zst", ".bz2")
PLAIN = (".txt", ".md", ".rst", ".py")
ROWS = (".jsonl", ".ndjson", ".json", ".csv", ".tsv")
TABLES = (".parquet", ".arrow")
SUPPORTED = f"{', '.join(PLAIN + ROWS)} (plain or {', '.join(COMPRESSIONS)}), {', '.join(TABLES)}"
PYTHON = "python://"
PYTHON_CORPORA = ("stdlib", "all")
SITE_PACKAGES = "site-packages/"
# Tests, caches and installed packages; `_sysconfigdata*.py` holds paths of the machine.
NOT_STDLIB = {"test", "tests", "idle_test", "__pycache__", "site-packages", "dist-packages"}
MACHINE_FILES = "_sysconfigdata"


class SourceSettings(Settings):
    """One source of text: where it is, which field holds the text, and its share of training."""

    path: str = Field(
        description="file, glob, directory, URL, hf://org/name@revision, python://stdlib"
    )
    text: str = Field("text", description="the field or column that holds the text")
    id: str | None = Field(None, description="the field that names a row; null names it by place")
    license: str | None = Field(None, description="SPDX name, carried with every row")
    weight: float = Field(1.0, gt=0, description="share of the training tokens")
    max_epochs: float | None = Field(None, gt=0, description="most repetitions in training")


@dataclass(frozen=True)
class SourceFile:
    """One regular file of a source; `name` is its path below the source's root, `/`-separated."""

    path: Path
    name: str
    size: int
    mtime_ns: int

    @property
    def format(self) -> str:
        """The suffix that says how to read it, without compression: `.jsonl`."""
        return data_suffix(self.name)


@dataclass(frozen=True)
class Source:
    """A source with its files found. `label` is its name in the `source` column."""

    settings: SourceSettings
    label: str
    files: tuple[SourceFile, ...]
    ignored: int = 0

    @property
    def is_python(self) -> bool:
        """Whether it is the embedded corpus."""
        return self.settings.path.startswith(PYTHON)


def resolve(sources: tuple[SourceSettings, ...]) -> list[Source]:
    """Every source with its files; labels are unique.

    Raises BadInput for a path that does not exist, a pattern that matches nothing, a format that
    is not supported, and anything that is not a regular file below its root.
    """
    if not sources:
        raise BadInput("the recipe names no sources; try `sources: [{path: python://stdlib}]`")
    resolved: dict[str, Source] = {}
    for settings in sources:
        label, files, ignored = _find(settings.path)
        names = itertools.chain([label], (f"{label}-{n}" for n in itertools.count(2)))
        unused = next(name for name in names if name not in resolved)
        resolved[unused] = Source(settings, unused, tuple(files), ignored)
    return list(resolved.values())


def python_files(corpus: str) -> list[SourceFile]:
    """The embedded corpus: the `.py` files of the standard library, or those and site-packages."""
    if corpus not in PYTHON_CORPORA:
        raise BadInput(f"unknown corpus '{PYTHON}{corpus}': {nearest(corpus, PYTHON_CORPORA)}")
    files = list(_python_tree(Path(sysconfig.get_path("stdlib")), ""))
    if corpus == "all":
        for packages in sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}):
            files += _python_tree(Path(packages), SITE_PACKAGES)
    return sorted(files, key=lambda f: f.name)


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file for reading; a FIFO or device is refused, not waited for."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise BadInput(f"{path} cannot be read by user {os.getuid()}: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise BadInput(f"{path} is not a regular file; only regular files can be sources")
    return os.fdopen(handle, "rb")


def data_suffix(name: str) -> str:
    """The suffix below compression, in lower case: `a.JSONL.gz` -> `.jsonl`."""
    path = Path(name.lower())
    return path.with_suffix("").suffix if path.suffix in COMPRESSIONS else path.suffix


def _find(path: str) -> tuple[str, list[SourceFile], int]:
    if path.startswith(PYTHON):
        return path, python_files(path.removeprefix(PYTHON)), 0
    if "://" in path:
        from tasks.data.reading.remote import download

        folder = download(path)
        return _fixed_part(path.split("://", 1)[1]).as_posix(), *_below(folder, _walk(folder), path)
    local = Path(path).expanduser()
    if local.is_dir():
        return local.resolve().name, *_below(local, _walk(local), path)
    if local.exists():
        _check_format(local)
        return local.name, [_record(local, local.name)], 0
    return _find_glob(path, local)


def _find_glob(path: str, local: Path) -> tuple[str, list[SourceFile], int]:
    if not glob.has_magic(path):
        raise BadInput(f"source '{path}' does not exist; looked for {Path.cwd() / local}")
    root = _fixed_part(path)
    matches = sorted(Path(m) for m in glob.iglob(str(local), recursive=True))  # noqa: PTH207
    matches = [m for m in matches if not m.is_dir()]
    if not matches:
        raise BadInput(f"source '{path}' matches no file; looked below {Path.cwd() / root}")
    return root.resolve().name, *_below(root, matches, path)


def _fixed_part(pattern: str) -> Path:
    """The folders of a pattern before its first wildcard."""
    parts = Path(pattern).expanduser().parts
    return Path(*itertools.takewhile(lambda part: not glob.has_magic(part), parts))


def _walk(folder: Path) -> list[Path]:
    """Every visible entry below a folder; links to folders are not followed."""
    found = []
    for parent, folders, names in os.walk(folder, onerror=_refuse):
        folders[:] = [f for f in folders if not f.startswith(".")]
        found += [Path(parent, n) for n in names if not n.startswith(".")]
    return found


def _refuse(error: OSError) -> None:
    user = os.getuid()
    raise BadInput(f"{error.filename} cannot be listed by user {user}: {error.strerror}")


def _below(root: Path, paths: list[Path], path: str) -> tuple[list[SourceFile], int]:
    """Records of the files in a supported format, sorted by name; and how many others there are."""
    usable = [p for p in paths if data_suffix(p.name) in PLAIN + ROWS + TABLES]
    if not usable:
        found = sorted({data_suffix(p.name) or "none" for p in paths})
        raise BadInput(
            f"source '{path}' has no file to read; looked at {len(paths)} files below "
            f"{root.resolve()} with suffixes {', '.join(found) or 'none'}; supported: {SUPPORTED}"
        )
    inside = root.resolve()
    for entry in usable:
        if entry.is_symlink() and not entry.resolve().is_relative_to(inside):
            raise BadInput(f"{entry} is a link out of {inside}; name its target as a source")
    records = [_record(p, p.relative_to(root).as_posix()) for p in usable]
    return sorted(records, key=lambda r: r.name), len(paths) - len(usable)


def _check_format(path: Path) -> None:
    if data_suffix(path.name) not in PLAIN + ROWS + TABLES:
        found = data_suffix(path.name) or "none"
        raise BadInput(f"{path} has suffix {found}, which is not read; supported: {SUPPORTED}")


def _record(path: Path, name: str) -> SourceFile:
    try:
        about = path.stat()
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(about.st_mode):
        raise BadInput(f"{path} is not a regular file; only regular files can be sources")
    name = os.fsencode(name).decode(errors="backslashreplace")
    return SourceFile(path, name, about.st_size, about.st_mtime_ns)


def _python_tree(root: Path, prefix: str) -> Iterator[SourceFile]:
    """The `.py` files below a folder, empty ones (package markers) left out."""
    for parent, folders, names in os.walk(root):
        folders[:] = [f for f in folders if f not in NOT_STDLIB]
        for name in names:
            if name.endswith(".py") and not name.startswith(MACHINE_FILES):
                path = Path(parent, name)
                about = path.stat()
                if about.st_size:
                    relative = prefix + path.relative_to(root).as_posix()
                    yield SourceFile(path, relative, about.st_size, about.st_mtime_ns)
