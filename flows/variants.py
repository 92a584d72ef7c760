"""Variants of a recipe, each with several seeds: what `headrace sweep` compares.

headrace sweep quickstart --over model.depth=2,3 --over pretrain.optimizer.learning_rate=0.001,0.003
headrace sweep quickstart --over model.depth=2,4 --over model.width=64 --one-at-a-time --seeds 5
headrace run guide      # whose variants have names, and several changes each

The seed is that of the trainings: initialisation, order of the data, dropout, masks. Text,
tokenizer and shards do not depend on it, so all seeds share them. Every variant has the same seeds,
`seed` of the recipe and those after it: their figures are compared seed by seed.
"""

import functools
import hashlib
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from cluster.errors import BadInput
from flows.overrides import assign
from flows.recipe import Recipe, validate
from flows.yaml_values import read_yaml
from model.flops import parameter_count
from tasks.training.costs import training_flops

Values = dict[str, Any]
BASELINE = "baseline"
VALUE_LENGTH, LABEL_LENGTH = 24, 80  # of names that people read, and folders bear


class Variant(NamedTuple):
    """A recipe to train, its value of every varied key, and the parts of its name."""

    parts: tuple[str, ...]
    values: Values
    recipe: Recipe

    @property
    def label(self) -> str:
        """What tells it from the others: `learning_rate=0.001,depth=2`."""
        return joined(self.parts)

    @property
    def network(self) -> Values:
        """What one training of it takes: `params`, `tokens`, `flops`; its `family` and `objective`,
        which is None where nothing is trained on text.
        """
        model, training = self.recipe.model, self.recipe.pretrain
        config = model.config(self.recipe.tokenizer.vocab_size, training.context if training else 1)
        tokens = training.tokens if training else 0
        return {
            "family": config.family,
            "objective": training.objective if training else None,
            "params": parameter_count(config),
            "tokens": tokens,
            "flops": training_flops(config, training) * tokens if training else 0,
        }

    def seeded(self) -> "Iterator[Variant]":
        """The same with each of its seeds."""
        several = self.recipe.seeds > 1
        for seed in range(self.recipe.seed, self.recipe.seed + self.recipe.seeds):
            parts = (*self.parts, f"seed={seed}") if several else self.parts
            yield Variant(parts, self.values, self.recipe.model_copy(update={"seed": seed}))


def varied(recipe: Recipe, over: Sequence[str], seeds: int | None, alone: bool) -> Recipe:
    """A recipe with what the command line says of its variants: `--over`, `--seeds`,
    `--one-at-a-time`.
    """
    said: dict[str, Any] = {"over": read_over(over)} if over else {}
    said |= {"seeds": seeds} if seeds is not None else {}
    return recipe.model_copy(update=said | ({"one_at_a_time": True} if alone else {}))


def joined(parts: Sequence[str]) -> str:
    """Parts of a name as one, of a length that folders bear."""
    label = ",".join(parts)
    return label if len(label) <= LABEL_LENGTH else _cut(label, LABEL_LENGTH, label)


def read_over(texts: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    """`a.b=1,2,3` as key and values; values are YAML. Raises BadInput for another form."""
    found: dict[str, tuple[Any, ...]] = {}
    for text in texts:
        key, equals, values = (part.strip() for part in text.partition("="))
        if not equals or not key or not values:
            raise BadInput(
                f"--over {text}: write it as key=value,value, for example model.depth=2,3"
            )
        if key in found:
            raise BadInput(f"--over {key} is given twice; write all its values in one, with commas")
        found[key] = tuple(read_yaml(f"[{values}]", f"--over {text}"))
    return found


def variants(recipe: Recipe) -> list[Variant]:
    """Every combination of the values of `over`; with `one_at_a_time` the recipe as it is, then
    each value alone; all that of each of its named `variants`. What makes the same recipe twice is
    there once. Raises BadInput for an unknown key or value.
    """
    keys = list(dict.fromkeys(itertools.chain(*recipe.variants.values(), recipe.over)))
    if any(key in ("seed", "seeds") for key in keys):
        raise BadInput("over seed: it is not varied but repeated; --seeds 5 trains with five each")
    named = recipe.variants or {"": {}}
    changes = [(name, change) for name in named for change in _changes(recipe)]
    made = [_made(recipe, named[name] | change) for name, change in changes]
    new = [i for i, one in enumerate(made) if one not in made[:i]]
    ends = _names([changes[i][1] for i in new], recipe.over)
    return [
        Variant(_parts(changes[i][0], end), _values(made[i], keys), made[i])
        for i, end in zip(new, ends, strict=True)
    ]


def _parts(name: str, ends: tuple[str, ...]) -> tuple[str, ...]:
    """The name of a variant, if it has one, and what else is varied."""
    return (name, *(end for end in ends if end != BASELINE)) if name else ends


def _changes(recipe: Recipe) -> Iterator[Values]:
    """What each variant sets."""
    if recipe.one_at_a_time:
        yield {}
        yield from ({key: value} for key, values in recipe.over.items() for value in values)
        return
    for combination in itertools.product(*recipe.over.values()):
        yield dict(zip(recipe.over, combination, strict=True))


def _made(recipe: Recipe, change: Values) -> Recipe:
    ways = {"over", "variants", "one_at_a_time"}
    plain = recipe.model_dump(mode="json", exclude_unset=True, exclude=ways)
    said = [f"{key}={value}" for key, value in change.items()]
    for (key, value), what in zip(change.items(), said, strict=True):
        assign(plain, key, value, f"over {what}")
    return validate(plain, " with ".join(filter(None, (recipe.name, ", ".join(said)))))


def _values(recipe: Recipe, keys: Iterable[str]) -> Values:
    """A recipe's own values of these keys; None below a section that it leaves out."""
    plain = recipe.model_dump(mode="json")
    return {key: functools.reduce(_inner, key.split("."), plain) for key in keys}


def _inner(section: Any, part: str) -> Any:
    if isinstance(section, list):
        return section[int(part)]
    return section.get(part) if isinstance(section, dict) else None


def _names(changes: Sequence[Values], over: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The parts of each variant's name: `learning_rate=0.001`, `depth=2`; no two have the same."""
    words = {key: _words([change[key] for change in changes if key in change]) for key in over}
    return [
        tuple(f"{_end(key, over)}={words[key][_plain(value)]}" for key, value in change.items())
        or (BASELINE,)
        for change in changes
    ]


def _end(key: str, keys: Iterable[str]) -> str:
    """The end of a dotted key, as much of it as no other key ends with."""
    parts = key.split(".")
    ends = (".".join(parts[i:]) for i in reversed(range(len(parts))))
    return next(e for e in ends if sum(f".{other}".endswith(f".{e}") for other in keys) == 1)


def _words(values: Sequence[Any]) -> dict[str, str]:
    """A word for each value, by its JSON, of letters that any file system takes. A hash shortens
    long ones, and tells apart those that look the same.
    """
    shown = {_plain(value): value if isinstance(value, str) else _plain(value) for value in values}
    words = {k: re.sub(r"[^A-Za-z0-9._+-]+", "-", text).strip("-") for k, text in shown.items()}
    looks = Counter(word.lower() for word in words.values())
    return {
        plain: word
        if 0 < len(word) <= VALUE_LENGTH and looks[word.lower()] == 1
        else _cut(plain, VALUE_LENGTH, word)
        for plain, word in words.items()
    }


def _plain(value: Any) -> str:
    return json.dumps(value, default=str)


def _cut(text: str, length: int, word: str) -> str:
    """The beginning of a word, and a hash of the text that it stands for."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return "-".join(filter(None, (word[: length - 9].rstrip("-.,"), digest)))
