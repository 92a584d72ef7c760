"""The report of a run: one self-contained page, `report.html`, of the results of its artifacts.

It reads manifests and small JSON files. What a run did not make is left out, so that a run of the
data stages only, or one without a sweep, reports too.
"""

from cluster.artifact import Artifact
from cluster.stage import stage
from cluster.store import Draft


@stage(version=10)
def report(artifacts: list[Artifact], draft: Draft) -> None:
    """Write `report.html` on these artifacts, given in the order they were planned."""
    from tasks.report.page import render

    page = render(artifacts, draft.spec.recipe)
    (draft.path / "report.html").write_text(page, encoding="utf-8")
    draft.metrics["bytes"] = float(len(page.encode()))
