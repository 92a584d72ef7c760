"""The templates of this folder, filled: light to import, as every run has a page made from one."""

import re
from typing import Any

from tasks.report import words

# A press, or the space bar, shows it as large as the window: without a script, which the frame that
# MLflow shows a page in does not run, and without a link into the page, which leads out of it.
ENLARGED = '<label class="plot"><input type="checkbox" aria-label="enlarge">%s</label>'


def fill(template: str, values: dict[str, Any]) -> str:
    """A template of this folder with its values: as HTML, or as Markdown where it is of that."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("tasks.report", "."),
        autoescape=template.endswith(".html.j2"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for name in ("label", "number", "signed_percent", "duration", "size"):
        environment.filters[name] = getattr(words, name)
    environment.filters["cell"] = _cell
    environment.filters["drawing"] = lambda svg: Markup(ENLARGED) % Markup(svg)  # noqa: S704
    return environment.get_template(template).render(values)


def _cell(text: object) -> str:
    """A text as it may stand in a table of Markdown."""
    return re.sub(r"[\s|]+", " ", str(text)).replace("<", "&lt;")
