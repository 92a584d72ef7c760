"""Where and on what a run happens. Never part of an artifact's identity."""

from pydantic import Field

from cluster.settings import Settings


class Placement(Settings):
    """Workers, devices and endpoints of one run."""

    workers: int = Field(1, ge=1, description="training processes of one stage; data parallel")
    data_workers: int | None = Field(
        None, ge=1, description="blocks of text worked on side by side; null is one per CPU"
    )
    gpus: int = Field(0, ge=0, description="GPUs per training process; 0 trains on the CPU")
    threads: int | None = Field(
        None, ge=1, description="CPU threads per training process; null is one"
    )
    zero_stage: int = Field(0, ge=0, le=3, description="DeepSpeed ZeRO stage")
    checkpoint_seconds: float = Field(20.0, gt=0, description="time between checkpoints")
    usd_per_hour: float = Field(0.0, ge=0, description="price of one worker, for estimates")
    judge_url: str | None = Field(
        None, description="OpenAI-compatible endpoint of the judge; null judges in-process"
    )

    @property
    def cpu_threads(self) -> int:
        """Threads each training process may use; one is deterministic and fastest when packed."""
        return self.threads or 1
