"""Content hashes of sources and files, remembered by size and modification time.

The marks `SOURCES`, `SOURCE` and `FILE` say that a field of settings names such a thing.

`$HEADRACE_HOME/source_hashes.json` maps a path to `[signature, sha256]`. The memory saves time and
decides nothing: a lost or broken file only costs hashing again.
"""

import contextlib
import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from cluster.files import write_atomically
from cluster.home import home
from cluster.settings import Content, Settings
from tasks.data.reading.erasures import Erasure, applying, kept, source_key
from tasks.data.reading.settings import SourceSettings
from tasks.data.reading.sources import Source, SourceFile, in_order, open_regular, resolve

MEMORY = "source_hashes.json"
Memory = dict[str, list[str]]
# A file written within the clock's grain of being hashed could change without a new time.
SETTLED_NS = 2_000_000_000
log = logging.getLogger("headrace.read")


class FoundSource(Settings):
    """A source by what is in it: its label, the hash of its content, how it is read, and the
    erasures that may take rows from it.
    """

    name: str
    content: str
    source: SourceSettings
    erased: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """What stands for it in an erasure that takes nothing from it."""
        return source_key(self.content, self.source.identity())


def content_hashes(sources: list[Source]) -> list[str]:
    """One SHA-256 per source, over the names and contents of its files in order."""
    with _remembered() as memory:
        return [_source_hash(source, memory) for source in sources]


def found_sources(settings: tuple[SourceSettings, ...]) -> tuple[FoundSource, ...]:
    """The sources in the order they are read, whatever the order of the recipe."""
    sources, erasures = resolve(settings), kept()
    pairs = in_order(sources, content_hashes(sources))
    return tuple(found_source(source, content, erasures) for source, content in pairs)


def found_source(source: Source, content: str, erasures: Sequence[Erasure]) -> FoundSource:
    """A source whose content has this hash, with those of some erasures that may apply."""
    found = FoundSource(name=source.label, content=content, source=source.settings)
    return found.model_copy(update={"erased": applying(erasures, found.key)}) if erasures else found


def source_hash(path: str) -> str:
    """SHA-256 over the files of the one source of this path."""
    return content_hashes(resolve((SourceSettings(path=path),)))[0]


def remembered_hash(path: str | Path) -> str:
    """SHA-256 of a file's bytes, which are read when they may have changed since the last time."""
    file = Path(path).expanduser()
    with open_regular(file) as handle:
        about = os.fstat(handle.fileno())
    with _remembered() as memory:
        found = SourceFile(file, file.name, about.st_size, about.st_mtime_ns)
        return _remembered_hash(memory, found)


def file_hash(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _source_hash(source: Source, memory: Memory) -> str:
    if source.is_python:  # thousands of small files: one entry for all of them
        signature = _combine(f"{f.name}:{f.size}:{f.mtime_ns}" for f in source.files)
        key = f"{source.settings.path} {source.files[0].path}"
        newest = max(f.mtime_ns for f in source.files)

        def whole_tree() -> str:
            return _combine(f"{f.name}:{file_hash(f.path)}" for f in source.files)

        return _remember(memory, key, signature, newest, whole_tree)
    return _combine(f"{f.name}:{_remembered_hash(memory, f)}" for f in source.files)


def _remembered_hash(memory: Memory, file: SourceFile) -> str:
    key, signature = str(file.path.resolve()), f"{file.size}:{file.mtime_ns}"
    return _remember(memory, key, signature, file.mtime_ns, lambda: file_hash(file.path))


def _remember(
    memory: Memory, key: str, signature: str, mtime_ns: int, compute: Callable[[], str]
) -> str:
    known = memory.get(key)
    if known and known[0] == signature:
        return known[1]
    content = compute()
    if time.time_ns() - mtime_ns > SETTLED_NS:
        memory[key] = [signature, content]
    return content


def _combine(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode(errors="surrogateescape")).hexdigest()


@contextlib.contextmanager
def _remembered() -> Iterator[Memory]:
    """The memory, to look up and add to; written back where the body added to it."""
    memory = _load()
    before = dict(memory)
    yield memory
    if memory != before:
        write_atomically(home() / MEMORY, json.dumps(memory, indent=0))


def _load() -> Memory:
    path = home() / MEMORY
    try:
        return dict(json.loads(path.read_text()))
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError) as error:
        log.warning("%s cannot be read (%s); sources are hashed again", path, error)
        return {}


SOURCES, SOURCE, FILE = Content(found_sources), Content(source_hash), Content(remembered_hash)
