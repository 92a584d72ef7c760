"""The YAML of lm-evaluation-harness, read: `include`, groups, tags; what asks for code is refused.

    read_task(Path("tasks/gsm8k.yaml"))    # a task or a group
    named_task(Path("tasks"), "mmlu")      # what is called so among the files of a folder

Source: lm-evaluation-harness 0.4.13, `tasks/_yaml_loader.py`, `_index.py` and `_factory.py`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from cluster.errors import BadInput
from cluster.settings import nearest
from tasks.evaluation.exams.harness.datafiles import data_files
from tasks.evaluation.exams.harness.filters import FILTERS
from tasks.evaluation.exams.harness.metrics import METRICS
from tasks.evaluation.exams.harness.task import Aggregate, Group, Task

Values = dict[str, Any]
MARKS = ("task", "group", "output_type", "dataset_path", "include")
"""Keys of which a YAML file of lm-evaluation-harness has one at least."""
IDLE = (
    "task_alias",
    "group_alias",
    "tag",
    "task_list",
    "metadata",
    "should_decontaminate",
    "doc_to_decontamination_query",
)
"""Keys that change nothing in what is asked and how it is graded."""
DATA = ("dataset_path", "dataset_name", "dataset_kwargs")
GROUP_KEYS = ("group", "group_alias", "task", "aggregate_metric_list", "metadata", "tag", "include")
CODE = {
    "process_docs": "apply it to the rows once, save them as JSON lines, and name that file in "
    "dataset_kwargs.data_files under dataset_path: json",
    "process_results": "name metrics in metric_list, or write an exam of kind code or overlap",
    "custom_dataset": "save its rows as JSON lines, and name them in dataset_kwargs.data_files",
    "class": "write the task as YAML",
    "unsafe_code": "write an exam of kind code, whose answers are run in a sandbox",
    "metric_list": f"its own metrics are {', '.join(METRICS)}",
    "filter_list": f"its own filters are {', '.join(FILTERS)}",
    "aggregate_metric_list": "a group's figures are means",
}
CODE_ALONE = ("process_docs", "process_results", "custom_dataset", "class", "unsafe_code")
"""Keys that are code whatever they hold."""
OTHERS = {
    "use_prompt": "write the prompt in doc_to_text",
    "doc_to_image": "only text is asked",
    "doc_to_audio": "only text is asked",
    "fewshot_indices": "lm-evaluation-harness does not act on it either; write these rows in "
    "fewshot_config.samples",
}


class Function(str):
    """The name of Python code that a YAML file asks for."""


class _Loader(yaml.SafeLoader):
    """Reads `!function name` as that name; nothing is run."""


_Loader.add_constructor("!function", lambda loader, node: Function(loader.construct_scalar(node)))  # type: ignore[arg-type]


@dataclass
class Index:
    """What is defined below a folder: keys by the name of a task or group, tasks by tag."""

    named: dict[str, tuple[Path, Values]] = field(default_factory=dict)
    tagged: dict[str, list[str]] = field(default_factory=dict)


def is_task(found: Mapping[str, Any]) -> bool:
    """Whether the keys of a YAML file are of this kind, and not an exam's of ours."""
    return "kind" not in found and any(key in found for key in MARKS)


def load_keys(path: Path, seen: tuple[Path, ...] = ()) -> Values:
    """The keys of a YAML file over those of the files that it includes. Raises BadInput for one
    that cannot be read, and for files that include each other.
    """
    whole = path.expanduser().resolve()
    if whole in seen:
        raise BadInput(f"{path} includes itself, by way of {' and '.join(map(str, seen))}")
    try:
        found = yaml.load(whole.read_text(encoding="utf-8"), Loader=_Loader)  # noqa: S506 (is safe)
    except OSError as error:
        raise BadInput(f"exam {path} cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise BadInput(f"exam {path} is no YAML: {error}") from error
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise BadInput(f"exam {path} is no mapping of keys; it needs name, kind, rows, prompt")
    if not is_task(found):
        return found
    included = found.pop("include", None) or []
    merged: Values = {}
    for name in [included] if isinstance(included, str) else included:
        inner = load_keys(whole.parent / name, (*seen, whole))
        inner.pop("task_list", None)
        merged |= inner
    return merged | found


def read_task(path: Path) -> Task | Group:
    """The task or group of a YAML file. Raises BadInput naming what is wrong with it."""
    found = load_keys(path)
    if "group" in found:
        return _group(found, path, _indexed(path.resolve().parent), {})
    return _task(found, path)


def named_task(folder: Path, name: str) -> Task | Group | None:
    """The task, group or tag of this name among the files below a folder; None without one."""
    index = _indexed(folder)
    if name in index.tagged and name not in index.named:
        return Group(group=name, members=tuple(_member(name, index, {}, name)))
    return next(_member(name, index, {}, name), None) if name in index.named else None


def _indexed(folder: Path) -> Index:
    """What is defined in the YAML files below a folder; what is none of these is passed over."""
    index = Index()
    for path in sorted(folder.rglob("*.yaml")):
        try:
            found = load_keys(path)
        except BadInput:
            continue  # a file that nothing names may be anything
        name = found.get("group") or found.get("task")
        if not is_task(found) or not isinstance(name, str):
            continue
        index.named.setdefault(name, (path, found))
        tags = found.get("tag") or []
        for tag in [tags] if isinstance(tags, str) else tags:
            index.tagged.setdefault(str(tag), []).append(name)
    return index


def _group(found: Values, path: Path, index: Index, over: Values) -> Group:
    """A group with its members; its keys that are none of a group's go to its tasks."""
    name = str(found["group"])
    own = {key: value for key, value in found.items() if key not in GROUP_KEYS} | over
    listed = found.get("task") or []
    members = [
        member
        for item in ([listed] if isinstance(listed, str) else listed)
        for member in _listed(item, name, path, index, own)
    ]
    if not members:
        raise BadInput(f"{path}: group {name} has no tasks")
    aggregates = found.get("aggregate_metric_list") or []
    if isinstance(aggregates, dict):
        aggregates = [aggregates]
    refuse_code({"aggregate_metric_list": aggregates}, path)
    about = {"group": name, "members": tuple(members), "version": _version(found)}
    means = tuple(validated(Aggregate, one, path) for one in aggregates)
    return validated(Group, {**about, "aggregates": means}, path)


def _listed(
    item: Any, group: str, path: Path, index: Index, over: Values
) -> Iterator[Task | Group]:
    """The members that one item of a group's list stands for."""
    if isinstance(item, str):
        item = {"task": item}
    if not isinstance(item, dict) or not ("task" in item or "group" in item):
        raise BadInput(
            f"{path}: group {group} lists {item!r:.60}; write a name, or task: or group:"
        )
    name = str(item["group"] if "group" in item else item["task"])
    more = over | {k: v for k, v in item.items() if k not in ("task", "group")}
    if name in index.named or name in index.tagged:
        yield from _member(name, index, more, group)
    elif "group" in item:
        yield _group(item | {"group": f"{group}::{name}"}, path, index, over)
    elif len(item) > 1:
        yield _task({**more, "task": f"{group}::{name}"}, path)
    else:
        raise BadInput(
            f"{path}: group {group} lists '{name}', which no YAML file in {path.resolve().parent} "
            f"defines; {nearest(name, [*index.named, *index.tagged])}"
        )


def _member(name: str, index: Index, over: Values, group: str) -> Iterator[Task | Group]:
    """What a name stands for: a task, a group, or all tasks with a tag."""
    if name not in index.named:
        for inner in sorted(index.tagged[name]):
            yield from _member(inner, index, over, group)
        return
    path, found = index.named[name]
    if "group" in found:
        yield _group(found, path, index, over)
    else:
        yield _task({**found, **over}, path)


def _task(found: Values, path: Path) -> Task:
    keys = {k: v for k, v in found.items() if k not in IDLE and v is not None and v is not False}
    refuse_code(keys, path)
    few = keys.get("fewshot_config")
    for key, way in OTHERS.items():
        if key in keys or (isinstance(few, dict) and few.get(key) is not None):
            raise BadInput(f"{path}: {key} is not read here; {way}")
    data = {key: keys.pop(key, None) for key in DATA}
    if not isinstance(data["dataset_path"], str):
        raise BadInput(
            f"{path} has no dataset_path: json, csv, parquet or text with data_files, ..."
        )
    files = data_files(
        data["dataset_path"], data["dataset_name"], data["dataset_kwargs"] or {}, path.parent
    )
    return validated(Task, {**keys, "files": tuple(files), "version": _version(found)}, path)


def _version(found: Values) -> str | None:
    about = found.get("metadata")
    version = about.get("version") if isinstance(about, dict) else None
    return None if version is None else str(version)


def refuse_code(value: Any, path: Path, key: str = "") -> None:
    """Raise BadInput for a key that is Python code, or holds some."""
    if isinstance(value, Function) or key in CODE_ALONE:
        first = key.partition(".")[0]
        what = f"{key} is !function {value}" if isinstance(value, Function) else key
        way = CODE.get(first, f"write {first} as a template, a column or a list")
        raise BadInput(f"{path}: {what}, which runs Python code and is not run here; {way}")
    if isinstance(value, dict):
        for name, inner in value.items():
            refuse_code(inner, path, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list):
        for inner in value:
            refuse_code(inner, path, key)


def validated(kind: Any, values: Values, path: str | Path) -> Any:
    """What a file says, as one of a kind. Raises BadInput with its first five faults."""
    try:
        return kind(**values)
    except ValidationError as error:
        faults = "; ".join(_fault(fault, kind) for fault in error.errors()[:5])
        raise BadInput(f"exam {path} cannot be used: {faults}") from None


def _fault(fault: Any, kind: Any) -> str:
    """One fault in words, with the nearest key for an unknown one."""
    place = ".".join(map(str, fault["loc"]))
    if fault["type"] == "extra_forbidden" and len(fault["loc"]) == 1:
        return f"unknown key '{place}': {nearest(place, kind.model_fields)}"
    if fault["type"] == "missing":
        return f"'{place}' is missing"
    return f"{place} = {fault['input']!r:.60}: {fault['msg']}" if place else fault["msg"]
