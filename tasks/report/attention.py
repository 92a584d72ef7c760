"""Attention drawn: which token looks at which, darker for more. One picture a head.

Letters: T tokens that look, S tokens that are looked at.
"""

import html
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap

from tasks.inference.attention import Map
from tasks.report.plots import SHADES, svg

TINT = LinearSegmentedColormap.from_list("tint", ("#ffffff", *SHADES))
INCHES = 0.17  # of a token
PAGE = """<!doctype html><meta charset="utf-8"><title>Attention</title>
<style>body {{font: 15px sans-serif; margin: 2rem; color: #1d2b33}} h2 {{font-size: 1rem}}
div {{display: flex; flex-wrap: wrap; gap: 1rem}} figure {{margin: 0; width: {width}rem}}
figcaption {{color: #5b6b73}}</style>
<h1>Attention</h1><p>A row is a token that looks, a column one that is looked at; dark is much.</p>
{sections}"""


def heat_map(
    weights_TS: np.ndarray, rows: Sequence[str], columns: Sequence[str], title: str
) -> str:
    """An SVG of weights between 0 and 1, with the tokens of both sides beside it."""

    def draw(axes: Axes) -> None:
        axes.imshow(weights_TS, cmap=TINT, vmin=0, vmax=1, aspect="equal")
        axes.grid(False)
        axes.set_xticks(range(len(columns)), [_shown(t) for t in columns], rotation=90, fontsize=7)
        axes.set_yticks(range(len(rows)), [_shown(t) for t in rows], fontsize=7)
        axes.xaxis.tick_top()

    inches = (0.8 + INCHES * len(columns), 0.8 + INCHES * len(rows))
    return svg(draw, title, inches)


def attention_page(maps: Sequence[Map]) -> str:
    """All maps as one page of HTML, a section a layer, a picture a head."""
    sections = []
    for one in maps:
        figures = "".join(
            f"<figure>{heat_map(weights, one.rows, one.columns, f'{one.name}, head {head}')}"
            f"<figcaption>head {head}</figcaption></figure>"
            for head, weights in enumerate(one.weights_HTS)
        )
        sections.append(f"<h2>{html.escape(one.name)}</h2><div>{figures}</div>")
    width = 4 + max(len(one.columns) for one in maps)
    return PAGE.format(width=min(width, 60), sections="\n".join(sections))


def _shown(token: str) -> str:
    """A token as a label: what is no letter is seen, and `$` is no formula."""
    return token.replace(" ", "·").replace("\n", "⏎").replace("$", r"\$")
