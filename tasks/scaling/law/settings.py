"""Settings of stage `fit`: the law, and how it is fitted. Set before the runs are seen."""

from typing import Literal

from pydantic import Field

from cluster.settings import Settings


class FitSettings(Settings):
    """How a sweep's runs are fitted. Set before the runs are seen, not after."""

    form: Literal["chinchilla", "tied", "kaplan"] = Field(
        "chinchilla", description="law of the loss in params and tokens"
    )
    loss: Literal["huber", "lad"] = Field("huber", description="loss of the log residuals")
    delta: float = Field(1e-3, gt=0, description="where Huber's loss turns linear, in log units")
    bootstrap: int = Field(200, ge=0, description="resamples of the runs behind errors and bands")
    noise: float = Field(
        0.0,
        ge=0,
        description="least relative spread of one run's loss over seeds that the band reckons "
        "with, where more is known of it than the residuals show",
    )
    drift: float = Field(
        0.01,
        ge=0,
        description="relative error of the law itself for each factor e of compute beyond the fit, "
        "put into the band; where budgets can be left out, the law's error on them replaces it",
    )
    least_flops: float = Field(0.0, ge=0, description="cheaper runs are left out of the fit")
    cuts: tuple[float, ...] = Field(
        (), description="FLOPs; the law is also fitted to the runs up to each, for comparison"
    )
