"""The pages of the reference, written from what the code says of itself.

`settings_page` follows the recipe's settings classes, `commands_page` the functions behind
`headrace`, `modules_page` the docstrings of the source. A setting, an option or a module without a
description is a gap; each function raises ValueError naming those it finds.
"""

import ast
import inspect
import re
import textwrap
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from types import NoneType
from typing import Any, Literal

from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from cluster.settings import keys

ROOT = Path(__file__).parents[1]
PACKAGES = ("flows", "tasks", "model", "cluster")
ROOM = 2
SHARED = ("home", "as_json")
PLURALS = {
    "int": "whole numbers",
    "float": "numbers",
    "str": "texts",
    "Path": "paths",
    "bool": "true or false",
}
SINGULARS = {
    "int": "whole number",
    "float": "number",
    "str": "text",
    "Path": "path",
    "bool": "true or false",
}
BOUNDS = {Ge: "from {0.ge}", Gt: "above {0.gt}", Le: "to {0.le}", Lt: "below {0.lt}"}
LENGTHS = {MinLen: "{0.min_length} or more", MaxLen: "{0.max_length} or fewer"}


# Settings ---------------------------------------------------------------------------------------


def settings_page() -> str:
    """Every key of a recipe, section by section, and those of an exam."""
    from flows.recipe import Recipe
    from tasks.evaluation.exams.definition import Exam

    known: dict[type[BaseModel], str] = {}
    plain = {n: f for n, f in keys(Recipe).items() if section(f.annotation) is None}
    parts = [
        "# Settings",
        "Every key that a recipe may have. `--set KEY=VALUE` takes the same keys; items of a list "
        "go by number, as in `--set sources.0.weight=2`.",
        "A key that is not listed here is refused, with the nearest one that is.",
        "## The recipe",
        fields(Recipe, plain, "", {}),
    ]
    for name, field in keys(Recipe).items():
        if name not in plain:
            parts += sections(name, field, field.default, 2, known)
    parts += ["## An exam", first_lines(Exam), fields(Exam, keys(Exam), "", {})]
    return page(parts)


def sections(
    key: str, field: FieldInfo, default: Any, level: int, known: dict[type[BaseModel], str]
) -> Iterator[str]:
    """A section and those inside it: what it is, then its keys. One of a class that is `known`
    names the section with the same keys, and the defaults in which it differs.
    """
    settings = section(field.annotation)
    assert settings is not None
    yield f"{'#' * min(level, 4)} `{key}`"
    what = sentence(field.description or first_lines(settings))
    yield " ".join(filter(None, (what, left_out(field))))
    if settings in known:
        there = known[settings]
        yield f"The keys of [`{there}`](#{there.replace('.', '')}){differing(default)}"
        return
    known[settings] = key
    inner = {n: f for n, f in keys(settings).items() if section(f.annotation)}
    own = {n: f for n, f in keys(settings).items() if n not in inner}
    yield fields(settings, own, f"{key}.", default)
    for name, one in inner.items():
        there = value_of(default, name, one.default)
        yield from sections(f"{key}.{name}", one, there, level + 1, known)


def differing(default: Any) -> str:
    """The defaults of a section that are not its class's."""
    given = default.model_dump(exclude_unset=True) if isinstance(default, BaseModel) else {}
    flat = [
        f"`{name}.{inner}` {shown(one)}" if inner else f"`{name}` {shown(one)}"
        for name, value in given.items()
        for inner, one in (value if isinstance(value, dict) else {"": value}).items()
    ]
    return f", with other defaults: {', '.join(flat)}." if flat else "."


def left_out(field: FieldInfo) -> str:
    """What is so when a section is not written."""
    if is_list(field.annotation):
        return "A list; each item has these keys." if not field.is_required() else "A list, needed."
    return "Left out unless it is written." if field.default is None else ""


def fields(owner: type[BaseModel], chosen: dict[str, FieldInfo], prefix: str, default: Any) -> str:
    """A definition list of fields. Raises ValueError for one without a description."""
    lines = []
    for name, field in chosen.items():
        if not field.description:
            raise ValueError(f"{owner.__name__}.{name} has no description")
        value = None if field.is_required() else shown(value_of(default, name, field.default))
        kind = allowed(field).removesuffix(" or null") if value == "null" else allowed(field)
        facts = f"{kind}, needed" if value is None else f"{kind}; {value} if left out"
        lines.append(f"`{prefix}{name}` <small>{facts}</small>")
        lines.append(f":   {sentence(field.description)}\n")
    return "\n".join(lines)


def allowed(field: FieldInfo) -> str:
    """What a field may be, in words."""
    return described(field.annotation, field.metadata)


def described(annotation: Any, marks: list[Any]) -> str:
    """A type and the bounds on it, in words."""
    inner = [part for part in typing.get_args(annotation) if part is not NoneType]
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return described(inner[0], [*marks, *inner[1:]])
    if NoneType in typing.get_args(annotation):
        return " or ".join([*(described(part, marks) for part in inner), "null"])
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in typing.get_args(annotation))
    if origin in (list, tuple):
        return listed(inner, marks)
    if origin is dict:
        return "keys and values"
    if origin is not None:
        return " or ".join(described(part, marks) for part in inner)
    name = getattr(annotation, "__name__", str(annotation))
    return " ".join([SINGULARS.get(name, name), *bounds(marks, BOUNDS)]).strip()


def listed(inner: list[Any], marks: list[Any]) -> str:
    """A list or a tuple of things, in words."""
    if inner and ... not in inner and len(inner) > 1:
        return f"{len(inner)} {PLURALS.get(inner[0].__name__, 'values')}"
    what = inner[0] if inner else str
    plural = PLURALS.get(getattr(what, "__name__", ""))
    return " ".join(["list of", plural or described(what, []), *bounds(marks, LENGTHS)])


def bounds(marks: list[Any], words: dict[Any, str]) -> list[str]:
    """The bounds among some marks."""
    return [words[type(mark)].format(mark) for mark in marks if type(mark) in words]


def section(annotation: Any) -> type[BaseModel] | None:
    """The settings class in an annotation, also within a list or beside null."""
    if isinstance(annotation, type):
        return annotation if issubclass(annotation, BaseModel) else None
    return next(filter(None, map(section, typing.get_args(annotation))), None)


def is_list(annotation: Any) -> bool:
    """Whether the value is a list of sections."""
    return typing.get_origin(annotation) in (list, tuple)


def value_of(default: Any, name: str, otherwise: Any) -> Any:
    """What a key is when it is left out, where a section has defaults of its own."""
    if isinstance(default, dict):
        return default.get(name, otherwise)
    return getattr(default, name, otherwise)


def shown(value: Any) -> str:
    """A default, as YAML has it."""
    if isinstance(value, BaseModel):
        return "as below"
    if isinstance(value, tuple | list):
        return "[" + ", ".join(bare(one) for one in value) + "]" if value else "none"
    if isinstance(value, dict):
        return "none" if not value else str(value)
    return bare(value)


def bare(value: Any) -> str:
    """A plain value."""
    words = {None: "null", True: "true", False: "false"}
    if value is None or isinstance(value, bool):
        return words[value]
    if isinstance(value, int) and abs(value) >= 10_000:
        return f"{value:_}"
    return str(value).replace("\n", "\\n")


# Commands ---------------------------------------------------------------------------------------


def commands_page() -> str:
    """Every command of `headrace` with its options, by subject."""
    from flows.cli import app

    functions = [command.callback for command in app.registered_commands if command.callback]
    parts = [
        "# Commands",
        "Every command takes `--help` and `--json`, by which it prints one JSON object on stdout "
        "and everything else on stderr; those that read or write state take `--home DIR`, the "
        "folder of all state, in place of `$HEADRACE_HOME` and `~/.headrace`. `KEY=VALUE` sets a "
        "key of the recipe ([settings](settings.md)).",
        "Exit status: 0 done, 2 bad input, 130 Ctrl-C, 143 SIGTERM, 1 anything else that failed.",
    ]
    subject = None
    for function in functions:
        module = inspect.getmodule(function)
        if module is not subject:
            subject = module
            parts.append(f"## {title(module)}")
        parts += command(function)
    return page(parts)


def title(module: Any) -> str:
    """The heading over the commands of a module: its docstring's phrase behind their names."""
    phrase = inspect.getdoc(module).split("\n")[0].split(". ")[0].split(": ", 1)[-1].rstrip(".")
    return phrase[0].upper() + phrase[1:]


def command(function: Callable[..., Any]) -> Iterator[str]:
    """One command: its usage, its words, its options. Raises ValueError for one without words."""
    text = inspect.getdoc(function)
    name = function.__name__.replace("_", "-")
    if not text:
        raise ValueError(f"headrace {name} has no docstring")
    options = list(inspect.signature(function, eval_str=True).parameters.values())
    yield f"### `headrace {name}`"
    yield f"<small>`{' '.join(['headrace', name, *usage(options)])}`</small>"
    yield prose(text)
    yield "\n".join(option(name, one) for one in options if one.name not in SHARED)


def prose(text: str) -> str:
    """A docstring as Markdown: lines that begin with a command are code."""
    blocks = []
    for block in text.split("\n\n"):
        code = all(line.startswith(("headrace ", "# ")) for line in block.splitlines())
        blocks.append(f"```sh\n{block}\n```" if code else block)
    return "\n\n".join(blocks)


def usage(options: list[inspect.Parameter]) -> list[str]:
    """The arguments of a command, as its help has them."""
    words = []
    for one in options:
        about = typing.get_args(one.annotation)[-1]
        if type(about).__name__ == "ArgumentInfo":
            word = about.metavar or one.name.upper()
            needed = one.default is inspect.Parameter.empty
            words.append(word if needed or word.startswith("[") else f"[{word}]")
    return [*words, "[OPTIONS]"]


def option(command: str, one: inspect.Parameter) -> str:
    """An argument or option of a command. Raises ValueError for one without a description."""
    annotation, about = typing.get_args(one.annotation)[:2]
    if not about.help:
        raise ValueError(f"headrace {command}: {one.name} has no help")
    if type(about).__name__ == "ArgumentInfo":
        name = about.metavar or one.name.upper()
    else:
        # Typer takes the first name given in `Annotated` for a default.
        given = (about.default, *(about.param_decls or ()))
        flags = [flag for flag in given if isinstance(flag, str) and flag.startswith("-")]
        name = "` `".join(flags) or f"--{one.name.replace('_', '-')}"
    marks = [Ge(about.min)] if about.min is not None else []
    marks += [Le(about.max)] if about.max is not None else []
    kind = about.metavar or described(annotation, marks).replace(" or null", "")
    small = ""
    if annotation is not bool:
        needed = one.default is inspect.Parameter.empty
        more = "" if one.default is None else f"; {shown(one.default)} if left out"
        small = f" <small>{kind}{', needed' if needed else more}</small>"
    return f"`{name}`{small}\n:   {sentence(about.help)}\n"


# Modules ----------------------------------------------------------------------------------------


def modules_page() -> str:
    """Every module with the first sentence of its docstring, folder by folder."""
    intro = (
        "What every module is, in the words of its own first line. Imports point one way: `flows` "
        "uses `tasks`, and both use `model` and `cluster`, which use none of the others."
    )
    parts = ["# Modules", intro]
    for package in PACKAGES:
        parts += folder(ROOT / package, 2)
    return page(parts)


def folder(path: Path, level: int) -> Iterator[str]:
    """A folder: its words, its modules, then the folders in it."""
    yield f"{'#' * min(level, 4)} `{path.relative_to(ROOT)}/`"
    yield phrase(path / "__init__.py") + "."
    files = [file for file in sorted(path.glob("*.py")) if file.name != "__init__.py"]
    yield "\n".join(f"`{file.name}`\n:   {phrase(file)}.\n" for file in files)
    for inner in sorted(path.iterdir()):
        if (inner / "__init__.py").exists():
            yield from folder(inner, level + 1)


def phrase(path: Path) -> str:
    """The first sentence of a module's docstring. Raises ValueError where there is none."""
    text = (ast.get_docstring(ast.parse(path.read_text())) or "").split("\n\n")[0]
    if not text:
        raise ValueError(f"{path.relative_to(ROOT)} has no docstring")
    return re.split(r"(?<=[a-z0-9)`]{2}[.;])\s", " ".join(text.split()))[0].rstrip(".;:")


# Words ------------------------------------------------------------------------------------------


def first_lines(thing: Any) -> str:
    """The first paragraph of a docstring."""
    text = inspect.getdoc(thing)
    if not text:
        raise ValueError(f"{thing.__name__} has no docstring")
    return " ".join(text.split("\n\n")[0].split())


def sentence(text: str) -> str:
    """A description as a sentence, with what YAML or HTML would read protected."""
    word = text.split()[0].rstrip(";")
    plain = word.isalpha() and word.islower()  # not a value, which stands as it is
    whole = text[0].upper() + text[1:] if plain else text
    whole = re.sub(r"(?<!`)<([^<>`]+)>(?!`)", r"`<\1>`", whole)
    whole = whole.replace("*", r"\*") if "`" not in whole else whole
    return whole if whole.endswith((".", "?", "!")) else f"{whole}."


def page(parts: list[str]) -> str:
    """Paragraphs as one page of Markdown."""
    return textwrap.dedent("\n\n".join(part.strip() for part in parts if part.strip())) + "\n"


PAGES = {"settings": settings_page, "commands": commands_page, "modules": modules_page}
