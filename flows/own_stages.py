"""Stages of the user's own, at their places in the DAG.

One `after` a stage of text takes the place behind it: what read that stage's rows reads its rows.
One with `inputs` takes what these stages leave, and nothing of ours takes anything from it.
"""

from collections import defaultdict
from typing import Any

from pydantic import Field, ValidationError, model_validator

from cluster.errors import BadInput
from cluster.own import CODE, OwnStage, find
from cluster.settings import Settings, nearest
from flows.plan.dag import Dag, Node

Names = defaultdict[str, list[Node]]
TEXT_STAGES = ("read", "filter", "dedup", "decontaminate", "redact")


class OwnStageSettings(Settings):
    """A function of one's own as a stage (`docs/how/own-stages.md`)."""

    name: str = Field(
        pattern=r"^[a-z][a-z0-9_]{0,31}$", description="the stage's name; other than those of ours"
    )
    function: str = Field(description="file and function: my_stages.py:clean")
    after: str | None = Field(
        None, description="stage of text behind which it takes its place; or give `inputs`"
    )
    inputs: dict[str, str | tuple[str, ...]] = Field(
        {}, description="stages that it takes, by the function's parameters"
    )
    settings: dict[str, Any] = Field({}, description="values of the function's own settings")

    @model_validator(mode="after")
    def _one_place(self) -> "OwnStageSettings":
        if (self.after is None) == (not self.inputs):
            raise ValueError(f"stage '{self.name}' has either `after` or `inputs`")
        return self


def behind(dag: Dag, own: tuple[OwnStageSettings, ...], text: Node) -> Node:
    """What takes the place of a stage of text: the last of those behind it, or itself."""
    for one in own:
        if one.after == text.spec.stage:
            function = _found(one)
            if len(function.inputs) != 1:
                raise BadInput(
                    f"stages.{one.name}: {one.function} takes {len(function.inputs)} artifacts; "
                    "behind a stage of text it takes one, or give `inputs` instead of `after`"
                )
            inner = tuple(other for other in own if other is not one)
            given = {function.inputs[0]: text}
            text = behind(dag, inner, _add(dag, one, function, given, text.spec.label))
    return text


def beside(dag: Dag, own: tuple[OwnStageSettings, ...], whole: bool) -> None:
    """Add the stages with inputs. Of a goal that is not the `whole` pipeline, those are left out
    whose inputs it does not have. Raises BadInput for a name that no stage has.
    """
    _check_names(dag, own)
    names: Names = defaultdict(list)
    for node in dag:
        _note(names, node)
    for one in own:
        wanted = [n for value in one.inputs.values() for n in _names(value)]
        if missing := [name for name in wanted if name not in names]:
            if whole:
                raise BadInput(
                    f"stages.{one.name}: no stage '{missing[0]}' in this run; "
                    f"{nearest(missing[0], names)}"
                )
            continue
        if one.inputs:
            inputs = {key: _inputs(names, value) for key, value in one.inputs.items()}
            _note(names, _add(dag, one, _found(one), inputs))
    if whole:
        _check_places(dag, own)


def _check_names(dag: Dag, own: tuple[OwnStageSettings, ...]) -> None:
    """Raise BadInput for a name that two stages have."""
    taken = {node.spec.stage for node in dag if not isinstance(node.function, OwnStage)}
    for one in own:
        if one.name in taken:
            raise BadInput(f"stages.{one.name}: there is a stage of this name; choose another")
        taken.add(one.name)


def _check_places(dag: Dag, own: tuple[OwnStageSettings, ...]) -> None:
    """Raise BadInput for a stage behind one that is not there."""
    there = {node.spec.stage for node in dag}
    for one in own:
        if one.after and one.name not in there:
            places = [*TEXT_STAGES, *(other.name for other in own if other.after)]
            raise BadInput(
                f"stages.{one.name}: no stage of text '{one.after}' to follow in this run; "
                f"{nearest(one.after, [p for p in places if p != one.name])}"
            )


def _found(one: OwnStageSettings) -> OwnStage:
    try:
        return find(one.function, one.name)
    except BadInput as error:
        raise BadInput(f"stages.{one.name}: {error}") from error


def _add(
    dag: Dag, one: OwnStageSettings, function: OwnStage, inputs: dict[str, Any], label: str = ""
) -> Node:
    """Add the stage. Raises BadInput where the function has not these inputs and settings."""
    wanted, unknown = set(function.inputs), set(inputs) - set(function.inputs)
    if unknown or wanted - set(inputs):
        raise BadInput(
            f"stages.{one.name}: {one.function} takes the artifacts "
            f"{', '.join(function.inputs) or 'none'}; `inputs` names {', '.join(inputs)}"
        )
    literals: dict[str, Any] = {CODE: function.code}
    if function.settings:
        literals["settings"] = _settings(one, function.settings)
    elif one.settings:
        raise BadInput(f"stages.{one.name}: {one.function} has no parameter `settings`")
    return dag.add(function, label=label, **inputs, **literals)


def _settings(one: OwnStageSettings, kind: type[Settings]) -> Settings:
    try:
        return kind.model_validate(one.settings)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, ("stages", one.name, "settings", *first["loc"])))
        known = f"; it has {', '.join(kind.model_fields)}" if kind.model_fields else ""
        raise BadInput(f"{place} = {first['input']!r}: {first['msg']}{known}") from None


def _names(value: str | tuple[str, ...]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else value


def _note(names: Names, node: Node) -> None:
    """Have a stage found by its name, and by what it is."""
    for name in {node.name, node.spec.stage}:
        names[name].append(node)


def _inputs(names: Names, value: str | tuple[str, ...]) -> Node | list[Node]:
    if isinstance(value, str):
        return _node(names, value)
    return [_node(names, name) for name in value]


def _node(names: Names, name: str) -> Node:
    """The stage of a name, one without a label before those with one. Raises BadInput where
    several are of it.
    """
    found = [node for node in names[name] if node.name == name] or names[name]
    if len(found) > 1:
        raise BadInput(f"stages: '{name}' is {', '.join(n.name for n in found)}; name one of them")
    return found[0]
