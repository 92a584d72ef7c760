"""Where and on what a run happens. Never part of an artifact's identity."""

from typing import Literal

from pydantic import Field, field_validator, model_validator

from cluster.settings import Settings


class Placement(Settings):
    """Workers, devices and endpoints of one run."""

    workers: int = Field(1, ge=1, description="training processes of one stage; data parallel")
    context_parallel: int = Field(
        1, ge=1, description="of the workers, those that share each row's positions (Ulysses)"
    )
    tensor_parallel: int = Field(
        1, ge=1, description="of the workers, those that have each network together (Megatron-LM)"
    )
    least_workers: int | None = Field(
        None,
        ge=1,
        description="go on with fewer workers, down to these, when some are lost; null waits for "
        "others in their place",
    )
    data_workers: int | None = Field(
        None, ge=1, description="blocks of text worked on side by side; null is one per CPU"
    )
    gpus: int | float = Field(
        0,
        ge=0,
        description="GPUs per training process; 0 trains on the CPU; with one worker a share of "
        "one, 0.25 say, lets as many small trainings have it together",
    )
    threads: int | None = Field(
        None, ge=1, description="CPU threads per training process; null is one"
    )
    micro_batch_tokens: int | None = Field(
        None,
        ge=1,
        description="tokens a training process works on at a time, at most (one sample at least); "
        "null is its whole share of a batch",
    )
    zero_stage: int = Field(0, ge=0, le=3, description="DeepSpeed ZeRO stage")
    offload: Literal["optimizer", "all"] | None = Field(
        None, description="what a GPU keeps in main memory; all is weights too, with zero_stage 3"
    )
    activation_checkpointing: Literal["none", "selective", "whole"] = Field(
        "none",
        description="what of the forward pass is computed again, for less memory: all of a layer, "
        "or all but its matrix products and attention; true is whole",
    )
    compile: bool = Field(False, description="compile the network's layers (torch.compile)")
    hang_seconds: float = Field(
        1800.0, gt=0, description="a training step that takes longer ends its process"
    )
    profile_steps: int = Field(
        0, ge=0, description="training steps to trace, by torch.profiler in Chrome's format"
    )
    checkpoint_seconds: float = Field(20.0, gt=0, description="time between checkpoints")
    usd_per_hour: float = Field(
        0.0, ge=0, description="price of one worker: of its threads and GPUs"
    )
    judge_usd: float = Field(
        0.0, ge=0, description="price of a million tokens of a model behind an endpoint"
    )
    max_hours: float | None = Field(
        None, gt=0, description="a run ends after so long, with checkpoints to go on from"
    )
    max_usd: float | None = Field(
        None, gt=0, description="a run ends when so much is spent, by usd_per_hour; likewise"
    )
    judge_url: str | None = Field(
        None, description="OpenAI-compatible endpoint of the judge; null judges in-process"
    )
    writer_url: str | None = Field(
        None,
        description="such an endpoint of the model that makes texts and grades; null is judge_url",
    )

    @field_validator("activation_checkpointing", mode="before")
    @classmethod
    def _all_or_nothing(cls, value: object) -> object:
        return {True: "whole", False: "none"}[value] if isinstance(value, bool) else value

    @model_validator(mode="after")
    def _offload_what_is_sharded(self) -> "Placement":
        least = {None: 0, "optimizer": 1, "all": 3}[self.offload]
        if self.zero_stage < least:
            raise ValueError(
                f"offload is {self.offload!r}, which needs zero_stage {least} or more; "
                f"it is {self.zero_stage}"
            )
        return self

    @model_validator(mode="after")
    def _whole_gpus(self) -> "Placement":
        if self.gpus != int(self.gpus) and (self.gpus > 1 or self.workers > 1):
            raise ValueError(
                f"gpus is {self.gpus:g} of each of {self.workers} workers: a share of a GPU is "
                "below 1 and of one worker alone; else it must be a whole number"
            )
        return self

    @model_validator(mode="after")
    def _dollars_that_are_spent(self) -> "Placement":
        if self.max_usd is not None and not self.usd_per_hour:
            raise ValueError(
                f"max_usd is {self.max_usd:g}, which a run never spends while usd_per_hour is 0: "
                "set it to the price of a worker"
            )
        return self

    @model_validator(mode="after")
    def _workers_that_fit_together(self) -> "Placement":
        for name in ("context_parallel", "tensor_parallel"):
            if self.workers % getattr(self, name):
                raise ValueError(
                    f"{name} is {getattr(self, name)}, which does not divide the "
                    f"{self.workers} workers"
                )
        if self.least_workers and self.least_workers > self.workers:
            raise ValueError(f"least_workers is {self.least_workers}, workers only {self.workers}")
        if self.least_workers and self.context_parallel > 1:
            raise ValueError("least_workers: workers that share rows cannot become fewer")
        return self

    @model_validator(mode="after")
    def _whole_networks(self) -> "Placement":
        rules = (
            (self.context_parallel == 1, "context_parallel", "1, as workers share either"),
            (self.least_workers is None, "least_workers", "null, as no part can be missing"),
            (self.zero_stage < 3, "zero_stage", "0, 1 or 2"),
        )
        for holds, name, allowed in rules:
            if self.tensor_parallel > 1 and not holds:
                raise ValueError(
                    f"tensor_parallel is {self.tensor_parallel}, and {name} is "
                    f"{getattr(self, name)}: it must be {allowed}; or set tensor_parallel to 1"
                )
        return self

    def micro_samples(self, sample_tokens: int) -> int | None:
        """How many samples of `sample_tokens` each a process works on at a time, at most; with
        context parallelism the processes that share rows, together. None is its whole share.
        """
        if self.micro_batch_tokens is None:
            return None
        return max(1, self.micro_batch_tokens * self.context_parallel // sample_tokens)

    @property
    def device(self) -> Literal["cpu", "cuda"]:
        """Where a stage's own process works on tensors: on the CPU where it launches several
        workers, as these have the GPUs.
        """
        return "cuda" if self.gpus and self.workers == 1 else "cpu"

    @property
    def cpu_threads(self) -> int:
        """Threads each training process may use; one is deterministic and fastest when packed."""
        return self.threads or 1
