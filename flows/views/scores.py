"""What commands that measure print for people: the headline first, figures as `.81 [.74, .86]`."""

from typing import Any

from flows.views.output import Output, estimate


def show_scores(out: Output, result: dict[str, Any]) -> None:
    """One system's scores, a metric a line, or those of several, a system a line."""
    from tasks.evaluation.overlap.scores import LOWER_IS_BETTER

    systems = result.get("systems", [result])
    first = systems[0]
    rows = f"{first['n']:,} row{'' if first['n'] == 1 else 's'}"
    count = f"{len(systems)} systems on {rows}" if systems[1:] else rows
    out.say(f"{count}; intervals: {first['intervals_by']}\n")
    if systems[1:]:
        _show_systems(out, systems, result["best"])
    else:
        columns = ("metric", "value", *_part_names(first))
        out.table(columns, ((name, *_cells(first, name)) for name in first["corpus"]))
    for system in systems:
        _show_differences(out, system)
    out.say("")
    for signature in first["signatures"].values():
        out.say(signature)
    if lower := LOWER_IS_BETTER & first["corpus"].keys():
        out.say(f"{', '.join(lower)}: lower is better")


def _show_systems(out: Output, systems: list[dict[str, Any]], best: dict[str, Any]) -> None:
    metrics = [*systems[0]["corpus"]]
    rows = []
    for system in systems:
        marks = [" *" if best[m]["best"] == system["file"] else "" for m in metrics]
        cells = [_cells(system, m)[0] + mark for m, mark in zip(metrics, marks, strict=True)]
        rows.append((system["file"], *cells))
        for part in _parts(system):
            figures = (estimate(_figure(system[part]["corpus"][m])) for m in metrics)
            rows.append((f"  {part} ({system[part]['rows']})", *figures))
    out.table(("system", *metrics), rows)
    out.say(
        "\n* better than the next: p under .05 in a paired bootstrap test, 0 outside its interval"
    )
    for metric, test in best.items():
        out.say(f"{metric}: {test['first']} over {test['next']} {_tested(test)}")


def _show_differences(out: Output, system: dict[str, Any]) -> None:
    if tests := system.get("difference"):
        out.say(f"\n{system['file']} over the other" if "file" in system else "\nover the other")
    for name, test in (tests or {}).items():
        out.say(f"{name}: {_tested(test)}")


def _tested(test: dict[str, Any]) -> str:
    p = f"{test['p']:.3f}".lstrip("0")
    return f"{estimate(test['difference'], test['interval'], '+')}, p {p}"


def _cells(system: dict[str, Any], name: str) -> list[str]:
    """A metric's value with its interval, and its values on clean and on dirty rows."""
    whole = estimate(_figure(system["corpus"][name]), system["intervals"][name])
    parts = (system[part]["corpus"][name] for part in _parts(system))
    return [whole, *(estimate(_figure(value)) for value in parts)]


def _parts(system: dict[str, Any]) -> list[str]:
    return [part for part in ("clean", "dirty") if system.get(part, {}).get("rows")]


def _part_names(system: dict[str, Any]) -> list[str]:
    return [f"{part} ({system[part]['rows']})" for part in _parts(system)]


def _figure(value: Any) -> float:
    from tasks.evaluation.overlap.scores import figure

    return figure(value)


def show_learned(out: Output, found: dict[str, Any]) -> None:
    """What a learned metric is worth beside chrF, on documents it has not seen."""
    gain = found["gain_interval"]
    verdict = "better than" if gain[0] > 0 else "worse than" if gain[1] < 0 else "not told from"
    out.say(
        f"tau {estimate(found['tau'], found['interval'])}, {verdict} chrF's "
        f"{estimate(found['chrf'])}: {estimate(found['gain'], gain, '+')}"
    )
    out.say(
        f"{found['pairs']} pairs of {found['documents']} documents, each scored by a metric learnt "
        "from others"
    )
    if "metric" in found:
        path = found["metric"]
        out.say(f"\nmetric   {path}; headrace score FILE --metrics learned --learned {path}")


NAMES = {"pearson": "r", "spearman": "rho", "kendall": "tau"}


def show_agreement(out: Output, found: dict[str, Any]) -> None:
    """How scores agree with people, and what was asked for besides."""
    ends = found["interval"]
    whole = ", ".join(f"{word} {estimate(found[n], ends[n])}" for n, word in NAMES.items())
    unscored = f", {found['unscored']} more unscored" if found["unscored"] else ""
    out.say(f"{whole} with people on {found['n']} rows{unscored}")
    if within := found.get("by_group"):
        means = ", ".join(f"{word} {estimate(within[n])}" for n, word in NAMES.items())
        without = f", {within['skipped']} without variation left out" if within["skipped"] else ""
        out.say(f"{means} within groups, the mean of {within['groups']}{without}")
    for line in _asked_besides(found):
        out.say(line)


def _asked_besides(found: dict[str, Any]) -> list[str]:
    """A line on each audit that was asked for, under an empty one."""
    lines = []
    if errors := found.get("errors"):
        lines.append(
            f"verdicts: {errors['false_pass']} false passes, {errors['false_fail']} false fails"
        )
    if about := found.get("calibration"):
        lines.append(
            f"calibrated ({about['how']}): {estimate(about['error'])} from people's rating on rows "
            f"held out, {estimate(about['error_of_mean'])} by always saying their mean"
        )
    if about := found.get("length"):
        rho = estimate(about["spearman"], about["interval"])
        beyond = estimate(about["beyond_people"])
        lines.append(f"length: rho {rho} with the score, {beyond} beyond people's ratings")
    if about := found.get("family"):
        gap = estimate(about["difference"], about["interval"], "+")
        lines.append(f"own family: {gap} over others, beyond people's ratings; {about['own']} rows")
    for level, about in found.get("alpha", {}).items():
        alpha = estimate(about["alpha"], about["interval"])
        lines.append(f"Krippendorff's alpha ({level}): {alpha}, {about['units']} rows")
    return ["", *lines] if lines else []


def show_exam(out: Output, found: dict[str, Any]) -> None:
    """One exam of one model."""
    unscored = f", {sum(found['unscored'].values())} unscored" if found["unscored"] else ""
    kept = ", as found before" if found["cached"] else ""
    lower = ", lower is better" if found["better"] == "lower" else ""
    out.say(f"\n{found['exam']}, {found['model']}{unscored}{kept}{lower}")
    rows = (
        (name, _of(one), one["n"], _of(one.get("clean")), _of(one.get("dirty")),
         estimate(one["baseline"]))
        for name, one in found["results"].items()
    )  # fmt: skip
    out.table(("", "value", "n", "clean", "dirty", "a guess"), rows)


def _of(one: dict[str, Any] | None) -> str:
    return estimate(one["value"], one["interval"]) if one and one["n"] else ""
