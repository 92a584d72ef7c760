"""Sources by name: which regular files a source is made of, in a fixed order.

Light on purpose: a cached run is planned from here in milliseconds.
"""

import glob
import itertools
import os
import stat
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass, replace
from io import BufferedReader
from pathlib import Path
from urllib.parse import unquote

from cluster.errors import BadInput
from cluster.settings import nearest
from tasks.data.reading.formats import ARCHIVES, MEMBERS, SUPPORTED, compression, data_suffix
from tasks.data.reading.remote import download
from tasks.data.reading.settings import SourceSettings

PYTHON, FILE = "python://", "file://"
PYTHON_CORPORA = ("stdlib", "all")
SITE_PACKAGES = "site-packages/"
# Tests, caches and installed packages; `_sysconfigdata*.py` holds paths of the machine.
NOT_STDLIB = {"test", "tests", "idle_test", "__pycache__", "site-packages", "dist-packages"}
MACHINE_FILES = "_sysconfigdata"


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

    @property
    def text_bytes(self) -> int:
        """About how much text it holds: compressed text grows to two to four times its size."""
        packed = compression(self.name) or self.format in (".parquet", ".zip")
        return self.size * 3 if packed else self.size

    def check_unchanged(self) -> None:
        """Raise BadInput when the file is no longer the one that was found."""
        about = self.path.stat() if self.path.exists() else None
        if about is None or (about.st_size, about.st_mtime_ns) != (self.size, self.mtime_ns):
            raise BadInput(
                f"{self.path} changed while it was read; run again when nothing writes to it"
            )


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
    """Every source with its files, as given; two may still have the same label.

    Raises BadInput for a path that does not exist, a pattern that matches nothing, a format that
    is not supported, and anything that is not a regular file below its root.
    """
    if not sources:
        raise BadInput("the recipe names no sources; try `sources: [{path: python://stdlib}]`")
    return [_resolve(settings) for settings in sources]


def in_order(sources: list[Source], contents: list[str]) -> list[tuple[Source, str]]:
    """Sources with their content hashes, by label and content, each under a label of its own.

    The order and the labels are the same however the recipe lists them.
    """

    def rank(pair: tuple[Source, str]) -> tuple[str, str, str]:
        source, content = pair
        return source.label, content, source.settings.model_dump_json(exclude={"path"})

    taken: list[tuple[Source, str]] = []
    for source, content in sorted(zip(sources, contents, strict=True), key=rank):
        flat = source.label.replace("/", "-")  # `org/name` could be a file of the source `org`
        names = itertools.chain([source.label, flat], (f"{flat}-{n}" for n in itertools.count(2)))
        label = next(n for n in names if not any(_overlap(n, other.label) for other, _ in taken))
        taken.append((replace(source, label=label), content))
    return taken


def _overlap(label: str, other: str) -> bool:
    """Whether rows of two sources could get the same name, which begins with the label."""
    return f"{label}/".startswith(f"{other}/") or f"{other}/".startswith(f"{label}/")


def python_files(corpus: str) -> list[SourceFile]:
    """The embedded corpus: the `.py` files of the standard library, or those and site-packages."""
    if corpus not in PYTHON_CORPORA:
        raise BadInput(f"unknown corpus '{PYTHON}{corpus}': {nearest(corpus, PYTHON_CORPORA)}")
    files = list(_python_tree(Path(sysconfig.get_path("stdlib")), ""))
    if corpus == "all":
        for packages in sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}):
            files += _python_tree(Path(packages), SITE_PACKAGES)
    return sorted(files, key=_name)


def root_of(path: str) -> Path | None:
    """Where the files of a source on this machine lie, or its one file; None of another."""
    local = unquote(path.removeprefix(FILE)) if path.startswith(FILE) else path
    return None if "://" in local else _fixed_part(local).absolute()


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


def _resolve(settings: SourceSettings) -> Source:
    path = settings.path
    if path.startswith(PYTHON):
        return Source(settings, path, tuple(python_files(path.removeprefix(PYTHON))))
    if path.startswith(FILE):  # where it lies is no part of its name, as for a plain path
        path = unquote(path.removeprefix(FILE))
    if "://" in path:
        label, folder = download(path)
        return _below(settings, label, folder, _walk(folder))
    local = Path(path).expanduser()
    if local.is_dir():
        return _below(settings, local.resolve().name, local, _walk(local))
    if local.exists():
        _check_format(local, settings)
        return Source(settings, local.name, (_record(local, local.name),))
    return _find_glob(settings, local)


def _find_glob(settings: SourceSettings, local: Path) -> Source:
    path = str(local)
    if not glob.has_magic(path):
        raise BadInput(f"source '{path}' does not exist; looked for {Path.cwd() / local}")
    root = _fixed_part(path)
    matches = sorted(Path(m) for m in glob.iglob(str(local), recursive=True))  # noqa: PTH207
    matches = [m for m in matches if not m.is_dir()]
    if not matches:
        raise BadInput(f"source '{path}' matches no file; looked below {Path.cwd() / root}")
    return _below(settings, root.resolve().name, root, matches)


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


def _below(settings: SourceSettings, label: str, root: Path, paths: list[Path]) -> Source:
    """The files that can be read, sorted by name, with a count of the others."""
    usable = [p for p in paths if settings.format or _readable(p)]
    if not usable:
        found = sorted({data_suffix(p.name) or "none" for p in paths})
        raise BadInput(
            f"source '{settings.path}' has no file to read; looked at {len(paths)} files below "
            f"{root.resolve()} with suffixes {', '.join(found) or 'none'}; supported: {SUPPORTED}"
        )
    inside = root.resolve()
    for entry in usable:
        if entry.is_symlink() and not _target(entry).is_relative_to(inside):
            raise BadInput(f"{entry} is a link out of {inside}; name its target as a source")
    files = sorted((_record(p, p.relative_to(root).as_posix()) for p in usable), key=_name)
    return Source(settings, label, tuple(files), ignored=len(paths) - len(usable))


def _target(link: Path) -> Path:
    try:
        return link.resolve()
    except (OSError, RuntimeError) as error:  # Python up to 3.12 raises the latter for a loop
        raise BadInput(f"{link} is a link that leads nowhere: {error}") from error


def _name(file: SourceFile) -> str:
    return file.name


def _readable(path: Path) -> bool:
    return data_suffix(path.name) in MEMBERS + ARCHIVES


def _check_format(path: Path, settings: SourceSettings) -> None:
    if not settings.format and not _readable(path):
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
