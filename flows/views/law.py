"""What `headrace fit` says: the law in a line, its parameters and predictions with bands."""

from collections.abc import Iterator, Mapping
from typing import Any

from flows.views.output import Output, human

FORMULAS = {
    "chinchilla": "loss = E + A / params^alpha + B / tokens^beta",
    "tied": "loss = E + A / params^alpha + B / tokens^alpha",
    "repeated": "loss = E + A / params^alpha + B / tokens^alpha, in effective params and tokens",
    "kaplan": "loss = ((N_c / params)^(alpha_N / alpha_D) + D_c / tokens)^alpha_D",
    "power": "y = c x^a",
    "isoflop": "lowest points of parabolas in log params",
}
PARAMETERS = {
    "chinchilla": ("E", "A", "B", "alpha", "beta"),
    "tied": ("E", "A", "B", "alpha"),
    "repeated": ("E", "A", "B", "alpha", "R_N", "R_D"),
    "kaplan": ("N_c", "alpha_N", "D_c", "alpha_D", "C_c", "alpha_C"),
    "power": ("c", "a"),
    "isoflop": (),
}


def show_fit(out: Output, result: Mapping[str, Any]) -> None:
    """The report of a fit; what stands in brackets is a 90 % band."""
    form, n = result["form"], result["n"]
    within = result.get("rms_log_residual")
    closely = "" if within is None else f", {within:.2%} off (root mean square)"
    out.say(f"{form}: {FORMULAS[form]}, through {n} runs{closely}")
    if not result["identifiable"]:
        out.say("These runs do not determine it; the warnings say why.")
    out.say("")
    for line in (*_parameters(result), *_optima(result), *_predictions(result)):
        out.say(line)
    for warning in result["warnings"]:
        out.say(f"warning: {warning}")


def _parameters(result: Mapping[str, Any]) -> Iterator[str]:
    names = PARAMETERS[result["form"]]
    bands = (result.get("bands") or {}) | {"E": result.get("E_band")}
    width = max(map(len, names), default=0)
    for name in names:
        yield f"{name:{width}} {result[name]:.4g}{_band(bands.get(name))}"
    if result["form"] == "power":
        return
    a, b = result.get("a"), result.get("b")
    if a is not None and b is not None:
        spread = (result.get("std_err") or {}).get("a")
        yield f"least loss at compute C: params ~ C^{a:.3f}, tokens ~ C^{b:.3f}" + (
            "" if spread is None else f" (± {spread:.2g})"
        )
    if apart := result.get("separate"):
        yield "each alone: " + ", ".join(f"{name} {apart[name]:.4g}" for name in apart)


def _band(band: list[float] | None) -> str:
    return "" if band is None else f" [{band[0]:.4g}, {band[1]:.4g}]"


def _optima(result: Mapping[str, Any]) -> Iterator[str]:
    for row in result.get("optima", ()):
        place = f"{human(row['params'])} params, {human(row['tokens'])} tokens"
        found = f"{place}, loss {row['loss']:.4g}" if row["interior"] else f"none, {row['why']}"
        runs = "1 run" if row["runs"] == 1 else f"{row['runs']} runs"
        yield f"{row['flops']:.3g} FLOP, {runs}: {found}"


def _predictions(result: Mapping[str, Any]) -> Iterator[str]:
    for told in result.get("predictions", ()):
        names = [name for name in ("params", "tokens", "unique_tokens", "x") if name in told]
        place = ", ".join(f"{human(told[name])} {name.replace('_', ' ')}" for name in names)
        what = "y" if "x" in told else "loss"
        yield f"{place}: {what} {told['loss']:.4g} [{told['low']:.4g}, {told['high']:.4g}]"
        reach, error = told["reach"], told["law_error"]
        far = f"{reach:.3g} times the largest run fitted"
        tested = "too few runs to leave any out and see how far off the law is"
        if error is not None:
            tested = f"{error:.2%} off on budgets left out"
        yield f"  {far}; {tested}"
