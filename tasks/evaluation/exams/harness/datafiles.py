"""Where the rows of a task lie: files that it names, a folder, a data set of the Hugging Face hub.

As `datasets.load_dataset` finds them: by `data_files`, by the `configs` in the head of a data set's
README, else by the words in the names of files and folders (train, validation, test and such).
"""

import glob
import itertools
import re
from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import yaml

from cluster.errors import BadInput
from cluster.home import subfolder
from cluster.names import inside
from tasks.data.reading.formats import data_suffix
from tasks.data.reading.remote import HUB, from_hub
from tasks.evaluation.exams.harness.task import DataFile

BUILDERS = ("json", "csv", "parquet", "arrow", "text")
FORMATS = {
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".txt": "text",
}
SPLITS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "dev", "val"),
    "test": ("test", "testing", "eval", "evaluation"),
}
CSV_OPTIONS = ("column_names", "names", "header", "delimiter", "sep", "quotechar", "skiprows")
IDLE = ("trust_remote_code", "streaming", "verification_mode")
"""Keys of `dataset_kwargs` that change nothing in what is read here."""
Named = Mapping[str, list[str]]
"""Patterns of files by split."""


def data_files(
    path: str, name: str | None, kwargs: Mapping[str, Any], place: Path
) -> list[DataFile]:
    """The files of `dataset_path`, `dataset_name` and `dataset_kwargs`, in the order they are read.

    Relative paths are beside the task's YAML, in `place`, or in the working directory. Raises
    BadInput where nothing is there, or where a data set is code.
    """
    told = {key: value for key, value in kwargs.items() if key not in IDLE}
    options = {key: told.pop(key) for key in (*CSV_OPTIONS, "field") if key in told}
    given, folder, revision = (
        told.pop(key, None) for key in ("data_files", "data_dir", "revision")
    )
    if told:
        known = ", ".join(("data_files", "data_dir", "revision", "field", *CSV_OPTIONS))
        raise BadInput(f"dataset_kwargs.{next(iter(told))} is not known; {known} are")
    if path in BUILDERS:
        if given is None:
            raise BadInput(
                f"dataset_path {path} needs dataset_kwargs.data_files, which names files"
            )
        found = _files(_by_split(given), [place, Path.cwd()])
        return [_file(split, file, path, options) for split, file in found]
    root = _root(path, name, revision, place)
    named = _by_split(given) if given is not None else _configured(root, name)
    base = root / folder if folder else root
    found = _files(named, [base]) if named else _by_words(base, name)
    if not found:
        raise BadInput(
            f"dataset_path {path} has no files of rows ({', '.join(FORMATS)}); a data set that is "
            "code is not run: save its rows as JSON lines, and name them in "
            "dataset_kwargs.data_files under dataset_path: json"
        )
    return [_file(split, file, None, options) for split, file in found]


def _by_split(given: Any) -> Named:
    """`data_files` as it may be written: a name, several, or these by split; alone they are train.

    Of a README it is also a list of `{split, path}`.
    """
    if isinstance(given, list) and given and isinstance(given[0], Mapping):
        given = {one["split"]: one["path"] for one in given}
    by_split = given if isinstance(given, Mapping) else {"train": given}
    return {
        str(split): [names] if isinstance(names, str) else [str(name) for name in names]
        for split, names in by_split.items()
    }


def _files(named: Named, places: list[Path]) -> list[tuple[str, Path]]:
    """Every file of these patterns, with its split."""
    found = []
    for split, patterns in named.items():
        for pattern in patterns:
            here = next(filter(None, (_matches(place, pattern) for place in places)), [])
            if not here:
                raise BadInput(f"data file '{pattern}' of split {split} is not in {places[0]}")
            found += [(split, path) for path in here]
    return found


def _matches(place: Path, pattern: str) -> list[Path]:
    whole = place / Path(pattern).expanduser()
    if whole.is_file():
        return [whole]
    return sorted(Path(name) for name in glob.glob(str(whole), recursive=True))  # noqa: PTH207


def _root(path: str, name: str | None, revision: str | None, place: Path) -> Path:
    """The folder of a data set: a local one, or a copy of one of the hub."""
    local = [base / Path(path).expanduser() for base in (place, Path.cwd())]
    if not path.startswith(HUB) and (here := next((one for one in local if one.is_dir()), None)):
        return here
    bare = path.removeprefix(HUB)
    repository = f"{bare}@{revision}" if revision and "@" not in bare else bare
    if repository.count("/") != 1:
        raise BadInput(
            f"dataset_path '{path}' is no folder here; write {', '.join(BUILDERS)} with "
            f"data_files, a folder, or {HUB}org/name of the Hugging Face hub"
        )
    folder = subfolder(f"downloads/tasks-{re.sub('[^A-Za-z0-9_.@-]+', '-', repository)}")
    from_hub(repository, folder, "dataset", ["README.md"])
    patterns = [one for names in _configured(folder, name).values() for one in names]
    wanted = patterns or [f"*{suffix}*" for suffix in FORMATS]
    return from_hub(repository, folder, "dataset", ["README.md", *wanted])


def _configured(root: Path, name: str | None) -> Named:
    """The patterns that the head of a data set's README has for a configuration; none without."""
    readme = root / "README.md"
    text = readme.read_text(encoding="utf-8") if readme.is_file() else ""
    head = re.match(r"---\n(.*?)\n---", text, re.DOTALL)
    about = yaml.safe_load(head[1]) if head else None
    configs = about.get("configs") if isinstance(about, dict) else None
    if not configs:
        return {}
    by_name = {str(one["config_name"]): one for one in configs}
    default = next((one for one in configs if one.get("default")), configs[0])
    chosen = by_name.get(name) if name else by_name.get("default", default)
    if chosen is None:
        raise BadInput(f"{root} has no configuration '{name}'; it has {', '.join(by_name)}")
    named = _by_split(chosen["data_files"])
    for pattern in itertools.chain.from_iterable(named.values()):
        inside(root, pattern)
    return named


def _by_words(base: Path, name: str | None) -> list[tuple[str, Path]]:
    """Files below a folder, or below that of a configuration, by split."""
    inner = base / name if name and (base / name).is_dir() else base
    paths = sorted(path for path in inner.rglob("*") if path.is_file() and _format(path))
    found = [(_split(path.relative_to(inner)), path) for path in paths]
    order = [*SPLITS]
    return sorted(found, key=lambda pair: order.index(pair[0]))


def _split(path: Path) -> str:
    """The split that the last word of a path that is one of a split's says; else train."""
    words = re.split(r"[-._ 0-9/]+", str(path).lower())
    known = {word: split for split, names in SPLITS.items() for word in names}
    return next((known[word] for word in reversed(words) if word in known), "train")


def _format(path: Path) -> str | None:
    hidden = any(part.startswith((".", "__")) for part in path.parts[-2:])
    about = fnmatch(path.name, "dataset_info*.json") or path.name == "config.json"
    return None if hidden or about else FORMATS.get(data_suffix(path.name))


def _file(split: str, path: Path, builder: str | None, options: Mapping[str, Any]) -> DataFile:
    found = builder or _format(path)
    if found is None:
        raise BadInput(f"{path} is of no known kind; {', '.join(FORMATS)} are, plain or compressed")
    own = CSV_OPTIONS if found == "csv" else ("field",) if found == "json" else ()
    kept = {key: value for key, value in options.items() if key in own}
    if found == "csv" and builder is None and data_suffix(path.name) == ".tsv":
        kept.setdefault("sep", "\t")
    return DataFile.model_validate(
        {"split": split, "path": str(path.resolve()), "format": found, "options": kept}
    )
