"""`headrace init`: a recipe for one's own text, with a comment on what one is likely to change."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

from cluster.errors import BadInput
from flows.recipe import validate
from flows.yaml_values import read_yaml
from tasks.data.reading.decompress import Damaged
from tasks.data.reading.encodings import AUTO
from tasks.data.reading.records import is_utf8, keys
from tasks.data.reading.settings import SourceSettings
from tasks.data.reading.sources import PYTHON, SourceFile, resolve

SCHEMA = "headrace.schema.json"
EMBEDDED = f"{PYTHON}stdlib"
USUAL = ("text", "content", "body", "document", "article", "passage", "story")
LONGEST_NAME = 40
TEMPLATE = """\
# {headline}
{editor}
# `headrace plan {path}` says what it takes, `headrace run {path}` makes it. A key left out has
# its default; `headrace schema` describes them all.
name: {name}                      # names the folders of what is made

sources:                        # paths are seen from the folder that headrace is run in
{sources}
filters: {{preset: {preset}}}        # basic | web (Gopher, C4, FineWeb) | code
dedup: {{exact: true, fuzzy: true}}
redact: {{kinds: [email, ip, phone, card, iban, national_id, secret], how: mask}} # or pseudonymise

tokenizer: {{kind: bpe, vocab_size: 4096}}   # smaller by itself where the text cannot fill it
model: {{depth: 4}}               # one dial, the rest follows; width, heads, family, preset: gpt2
pretrain:
  context: 256                  # tokens that the model sees at once
  tokens: 1000000               # to train on; about four bytes of text each
  batch_tokens: 16384
  optimizer: {{learning_rate: 0.003}}

evaluate: {{heldout: {{max_tokens: 200000}}}}   # scored on documents that training never sees

# Left out here; without the line, or with settings instead of null, they are part of a run.
sweep: null                     # a scaling law from small runs, and its forecast
classify: null                  # fine-tuning for classification
instruct: null                  # tuning to answer, judged

# Variants to compare, by `headrace sweep {path}`, each with five seeds:
# over: {{model.depth: [2, 4], pretrain.optimizer.learning_rate: [0.001, 0.003]}}
# seeds: 5
# one_at_a_time: true

placement: {{workers: 1, gpus: 0, threads: null}}   # where it runs; changes nothing that is made
"""


def write_recipe(arguments: Sequence[str], name: str | None, text: str | None) -> Path:
    """Write the recipe that these arguments ask for, sources and at most one `.yaml` path; where.

    Raises BadInput for a file that is there already, a source without text, or a bad name.
    """
    targets = [one for one in arguments if one.endswith((".yaml", ".yml"))]
    if len(targets) > 1:
        raise BadInput(f"one recipe is written at a time, not {', '.join(targets)}")
    paths = joined([one for one in arguments if one not in targets])
    named = name or _named(Path(targets[0]).stem if targets else _stem(paths))
    path = Path(targets[0] if targets else f"{named}.yaml").expanduser()
    if path.exists():
        raise BadInput(f"{path} is there already, and is left as it is; name another, other.yaml")
    written = recipe_text(str(path), named, paths, text)
    validate(read_yaml(written, str(path)), f"--name {named}")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("x", encoding="utf-8") as file:
        file.write(written)
    return path


def recipe_text(path: str, name: str, sources: Sequence[str], text: str | None) -> str:
    """A commented recipe; of the embedded corpus where there are no sources."""
    return TEMPLATE.format(
        headline="Raw text to an evaluated language model.",
        editor=_editor(Path(path).parent),
        path=path,
        name=name,
        sources="".join(_source(one, text) for one in sources or [EMBEDDED]),
        preset="basic" if sources else "code",
    )


def joined(paths: Sequence[str]) -> list[str]:
    """The paths, as a pattern again where a shell has made many files of one."""
    if len(paths) < 3:
        return list(paths)
    folders, suffixes = {Path(p).parent for p in paths}, {"".join(Path(p).suffixes) for p in paths}
    if len(folders) == len(suffixes) == 1 and (suffix := suffixes.pop()):
        folder = folders.pop()
        if sorted(folder.glob(f"*{suffix}")) == sorted(map(Path, paths)):
            return [str(folder / f"*{suffix}")]
    return list(paths)


def _source(path: str, text: str | None) -> str:
    """The lines of one source. Raises BadInput when it has no text."""
    if path == EMBEDDED:
        return f"  - path: {EMBEDDED}    # Python's own library to begin with: put your text here\n"
    settings, fields = SourceSettings(path=path), list[str]()
    lines = f"  - path: {json.dumps(path)}   # a file, glob, folder or URL\n"
    if "://" not in path:
        file, damaged = _first_file(settings)
        if damaged:
            lines += f"    on_damaged: skip   # {damaged} is damaged, and counted as left out\n"
        if not is_utf8(file):
            settings = settings.model_copy(update={"encoding": AUTO})
            lines += f"    encoding: {AUTO}   # it is not UTF-8; or name it, such as cp1252\n"
        fields = keys(file, settings)
    if not fields and text is None:
        return lines
    if text is not None and fields and text.split(".")[0] not in fields:
        raise BadInput(f"--text {text}: {path} has the fields {', '.join(fields)}")
    chosen = text or next((one for one in USUAL if one in fields), None)
    if chosen is None and any(map(_is_a_value, fields)):
        named = {f"column_{n}": cell for n, cell in enumerate(fields, 1)}
        lines += f"    header: {json.dumps(list(named))}   # its first line seems to be a row\n"
        fields, chosen = list(named), max(named, key=lambda name: len(named[name]))
    chosen = chosen or fields[0]
    told = f"of {', '.join(fields)}" if fields else "the field that holds the text"
    return f"{lines}    text: {json.dumps(chosen)}   # {told}\n"


def _first_file(settings: SourceSettings) -> tuple[SourceFile, str]:
    """A source's first file that can be read and has something in it, and the name of a damaged one
    before it. Raises BadInput where there is none.
    """
    (source,) = resolve((settings,))
    damaged, last = "", None
    for file in [file for file in source.files if file.size] or source.files:
        try:
            is_utf8(file)
            keys(file, settings)
            return file, damaged
        except Damaged as error:
            damaged, last = damaged or file.name, error
    if last:
        raise last
    raise BadInput(f"source '{settings.path}' has no file that can be read as text")


def _is_a_value(name: str) -> bool:
    """Whether what should be a column's name is a number or a text: the table has no header."""
    return len(name) > LONGEST_NAME or name.lstrip("-").replace(".", "", 1).isdigit()


def _editor(folder: Path) -> str:
    if (folder / SCHEMA).is_file():
        return f"# yaml-language-server: $schema={SCHEMA}"
    return "# Completion and checks in an editor: see `headrace schema --help`."


def _stem(paths: Sequence[str]) -> str:
    """What to call a recipe of these sources: the first one's file or folder."""
    if not paths:
        return "mine"
    first = Path(paths[0].split("://")[-1])
    while "*" in first.name or "?" in first.name:
        first = first.parent
    return first.resolve().name.split(".")[0]


def _named(word: str) -> str:
    """A word as the name of a recipe."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", word).strip("-._")[:64] or "mine"
