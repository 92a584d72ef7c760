"""The processes of one training: who they are and what they tell each other.

A process that trains alone is a world of one, with a process group that opens no port. It is kept
for the next training in the same process, as DeepSpeed keeps references to it.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NoReturn, TypeVar

import torch
import torch.distributed as dist

from cluster.errors import BadInput

BACKENDS = {False: "gloo", True: "cpu:gloo,cuda:nccl"}
"""What processes talk by, with GPUs or without."""
TIMEOUT, PATIENCE = timedelta(minutes=30), timedelta(days=7)
Found = TypeVar("Found")


@dataclass(frozen=True)
class World:
    """This process's place among all of them. Collective calls must be made by every rank."""

    rank: int
    size: int
    device: torch.device

    @property
    def leads(self) -> bool:
        """Whether this process writes what is written once."""
        return self.rank == 0

    def sum(self, values: list[float]) -> list[float]:
        """Each value summed over all ranks, in fp64; the same bits everywhere."""
        if self.size == 1:
            return values
        total = torch.tensor(values, dtype=torch.float64)  # by gloo: no device is waited for
        dist.all_reduce(total)
        return total.tolist()

    def mean_later(self, values: torch.Tensor) -> Callable[[], list[float]]:
        """A function that reads the mean of each value over all ranks: it waits for the devices,
        this call does not.
        """
        if self.size > 1:
            dist.all_reduce(values)
            values = values / self.size
        return self.later(values)

    def later(self, values: torch.Tensor) -> Callable[[], list[float]]:
        """A function that reads values, waiting for this rank's device, as this call does not."""
        if self.device.type == "cpu":
            return values.tolist
        arriving, done = values.to("cpu", non_blocking=True), torch.cuda.Event()
        done.record()

        def read() -> list[float]:
            done.synchronize()
            return arriving.tolist()

        return read

    def broadcast(self, value: Any) -> Any:
        """What rank 0 passed."""
        holder = [value]
        if self.size > 1:
            dist.broadcast_object_list(holder, src=0, device=self.device)
        return holder[0]

    def gather(self, value: Any) -> list[Any]:
        """What every rank passed, by rank; all ranks get the list."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    @contextmanager
    def patient(self) -> Iterator[Callable[[Any], list[Any]]]:
        """A `gather` to which ranks may come hours apart; into the block they come together."""
        if self.size == 1:
            yield self.gather
            return
        group: Any = dist.new_group(backend="gloo", timeout=PATIENCE)

        def gather(value: Any) -> list[Any]:
            values: list[Any] = [None] * self.size
            dist.all_gather_object(values, value, group=group)
            return values

        try:
            yield gather
        finally:
            dist.destroy_process_group(group)

    def agree(self, find: Callable[[], Found]) -> Found:
        """What rank 0 finds, or the BadInput it meets, on every rank."""
        mine: Found | BadInput | None = None
        if self.leads:
            try:
                mine = find()
            except BadInput as error:
                mine = error
        found: Found | BadInput = self.broadcast(mine)
        if isinstance(found, BadInput):
            raise found
        return found

    def fail(self, error: Exception | None) -> NoReturn:
        """Raise the error of this rank or, where it has none, that of the first rank that has: a
        BadInput as it is, any other as a RuntimeError.
        """
        told = error if error is None or isinstance(error, BadInput) else RuntimeError(repr(error))
        first = next(filter(None, self.gather(told)))
        raise error or first


def set_precision() -> None:
    """What a GPU may round: factors of fp32 products to TF32's 10 bits of mantissa, and the partial
    sums of bf16 and fp16 products not at all.
    """
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False


def join(gpu: bool) -> World:
    """This process's world: the one its launcher made, or one of its own."""
    os.environ.setdefault("LOCAL_RANK", "0")  # DeepSpeed insists
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)
        set_precision()
    if not dist.is_initialized():
        backend = BACKENDS[gpu]
        dist.init_process_group(
            backend, store=dist.HashStore(), rank=0, world_size=1, timeout=TIMEOUT
        )
    return World(dist.get_rank(), dist.get_world_size(), device)
