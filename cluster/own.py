"""A stage of the user's own: a function in a file of theirs, marked as ours are.

    from headrace import Artifact, Draft, Settings, stage

    class Lengths(Settings):
        most: int = 1000

    @stage(version=1)
    def lengths(text: Artifact, settings: Lengths, draft: Draft) -> None: ...

The file's source is part of the stage's identity, and all that other processes and nodes get of it:
it imports installed packages and `headrace`, and no neighbour.
"""

import ast
import hashlib
import inspect
import linecache
import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.settings import Settings, nearest
from cluster.stage import StageInfo, info

CODE = "code"  # the argument that stands for the file, beside those of the function
MODULE = "headrace_own_"


@dataclass(frozen=True, eq=False)
class OwnStage:
    """A stage function of a file: called, pickled and told of as one of ours."""

    name: str
    path: str
    function: str
    source: str

    def __call__(self, **arguments: Any) -> None:
        """Run it."""
        self.target(**{name: value for name, value in arguments.items() if name != CODE})

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as its source, which is run where this is read: what comes later in the pickle,
        settings of its classes, finds their module there.
        """
        return _restored, (self.name, self.path, self.function, self.source)

    @cached_property
    def target(self) -> Callable[..., None]:
        """The function itself. Raises BadInput where the file cannot be run."""
        found: Callable[..., None] = getattr(loaded(self.path, self.source), self.function)
        return found

    @property
    def code(self) -> str:
        """A hash of the file."""
        return hashlib.sha256(self.source.encode()).hexdigest()

    @property
    def __stage__(self) -> StageInfo:
        """What its decorator says, under the name that the recipe gives it."""
        return replace(info(self.target), name=self.name)

    @property
    def __signature__(self) -> inspect.Signature:
        """That of the function, and what stands for the file."""
        plain = inspect.signature(self.target)
        code = inspect.Parameter(CODE, inspect.Parameter.KEYWORD_ONLY)
        return plain.replace(parameters=[*plain.parameters.values(), code])

    @property
    def inputs(self) -> list[str]:
        """The parameters that are artifacts, or lists of them."""
        kinds = self._kinds
        return [name for name in kinds if kinds[name] in (Artifact, list[Artifact])]

    @property
    def settings(self) -> type[Settings] | None:
        """The class of its settings, if it has any."""
        found: type[Settings] | None = self._kinds.get("settings")
        return found

    @cached_property
    def _kinds(self) -> dict[str, Any]:
        try:
            return get_type_hints(self.target)
        except Exception as error:
            where = f"{self.path}:{self.function}"
            raise BadInput(f"{where}: its types cannot be read: {error}") from error


def find(entry: str, name: str) -> OwnStage:
    """The stage that `file.py:function` names. Raises BadInput for a file that cannot be read or
    run, and a function that it does not have, or that is no stage.
    """
    path, function, source = read_function(entry, "my_stages.py:my_function")
    found = OwnStage(name, path, function, source)
    if not hasattr(found.target, "__stage__"):
        raise BadInput(f"{entry} is no stage: write `@stage(version=1)` above it")
    return found


def read_function(entry: str, form: str) -> tuple[str, str, str]:
    """The path, the function's name and the source of `file.py:function`; `form` shows how to write
    one. Nothing of the file is run. Raises BadInput as `find` does.
    """
    path, _, function = entry.rpartition(":")
    if not path.endswith(".py") or not function.isidentifier():
        raise BadInput(f"'{entry}' is not of the form {form}")
    try:
        source = Path(path).expanduser().read_text(encoding="utf-8")
        module = ast.parse(source, path)
    except (OSError, ValueError, SyntaxError) as error:
        raise BadInput(f"{path} cannot be read: {error}") from error
    functions = [node.name for node in module.body if isinstance(node, ast.FunctionDef)]
    if function not in functions:
        hint = nearest(function, functions) if functions else "it has no function"
        raise BadInput(f"{path} has no function '{function}': {hint}")
    return path, function, source


def loaded(path: str, source: str) -> ModuleType:
    """The module of a file's source, run once in this process. Raises BadInput where that fails."""
    name = MODULE + hashlib.sha256(source.encode()).hexdigest()[:16]
    if name in sys.modules:
        return sys.modules[name]
    module = sys.modules[name] = ModuleType(name)
    module.__file__ = path
    # Tracebacks show its lines, wherever the file is.
    linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)
    try:
        exec(compile(source, path, "exec"), module.__dict__)  # noqa: S102 (the user's own)
    except Exception as error:
        del sys.modules[name]
        raise BadInput(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
    return module


class Portable:
    """A function, a `partial` of one, or one inside another, that other processes can call though
    it is of a file that they do not have: it brings the source.
    """

    def __init__(self, function: Callable[..., Any]):
        from ray import cloudpickle  # which takes functions inside others too

        plain = getattr(function, "func", function)
        self.name = str(plain.__name__)
        module = sys.modules.get(plain.__module__)
        own = module is not None and module.__name__.startswith(MODULE)
        self.file = _source_of(module) if module and own else None
        self.payload = cloudpickle.dumps(function)

    def __call__(self, *arguments: Any) -> Any:
        """Call it."""
        return self.function(*arguments)

    def __getstate__(self) -> dict[str, Any]:
        return {key: self.__dict__[key] for key in ("name", "file", "payload")}

    @cached_property
    def function(self) -> Callable[..., Any]:
        """The function in this process."""
        if self.file:
            loaded(*self.file)
        found: Callable[..., Any] = pickle.loads(self.payload)  # noqa: S301 (our own)
        return found


def _source_of(module: ModuleType) -> tuple[str, str]:
    path = str(module.__file__)
    return path, "".join(linecache.cache[path][2])  # pyrefly: ignore[bad-index]


def _restored(name: str, path: str, function: str, source: str) -> OwnStage:
    loaded(path, source)
    return OwnStage(name, path, function, source)
