"""The training loop: the one that pretraining, sweep runs, fine-tuning and instruct tuning share.

    launch(TrainJob(build=partial(build_program, ...), steps=100, batch_samples=64, ...), placement)

Every rank builds the program, takes its slice of each global batch and steps the DeepSpeed engine.
A step depends on the state before it and on its own number only, which seeds dropout and addresses
the batch. So a training that was killed goes on from its newest checkpoint and ends with the same
bits as one that was not. A process whose step hangs, say on a rank that is lost, tells where, and
ends itself, to be started again.
"""

import faulthandler
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial

import torch
from torch import Tensor

from cluster.placement import Placement
from cluster.world import World, join
from model.sharded import Shards, asked
from tasks.training import checkpoint, state, weights
from tasks.training.context_parallel import split_context_of
from tasks.training.device import memory_bytes, peak_flops, reads_late
from tasks.training.early_stopping import VALIDATION
from tasks.training.engine import advance, clipped, discard, gradients, start_engine
from tasks.training.feed import Feed
from tasks.training.history import history
from tasks.training.in_flight import Asked, Unread
from tasks.training.job import CHECKPOINTS, Preempted, TrainJob
from tasks.training.micro_batches import mean_loss
from tasks.training.oom import release, smaller
from tasks.training.prefetch import Prefetcher
from tasks.training.process import is_fast, seed_dropout, terminated, threads
from tasks.training.schedule import factor
from tasks.training.sitting import sit
from tasks.training.spikes import LossWatch, Spike, skip
from tasks.training.telemetry import MetricsFile, Reporter, Row, speed
from tasks.training.tensor_parallel import divided, whole_reader
from tasks.training.tracing import traced

STDERR = 2  # sys.stderr may have been replaced by something without a file
log = logging.getLogger("headrace.train")


def train(job: TrainJob, placement: Placement) -> None:
    """Train, from the newest checkpoint if there is one, and leave `weights.safetensors` and
    `metrics.jsonl` in the job's scratch folder, with `skipped.json` where batches were skipped.

    Every rank calls this. Raises Diverged, Preempted, CheckpointFailed, or BadInput when the
    checkpoints found are damaged or belong to another training.
    """
    if not placement.gpus and not is_fast(job.precision):
        log.warning("this CPU has no such arithmetic: %s is far slower than fp32", job.precision)
    with threads(placement.cpu_threads):
        world = join(gpu=placement.gpus > 0)
        while True:
            try:
                if (spike := _attempt(job, placement, world)) is None:
                    return
                skip(job, world, spike)
            except torch.OutOfMemoryError as error:
                job = smaller(job, world, error)
            release(world.device)  # not before the error is gone: its frames hold the engine


def _attempt(job: TrainJob, placement: Placement, world: World) -> Spike | None:
    """Train to the end, or to a step that should not be made; every rank meets it alike."""
    found = checkpoint.agreed(job.scratch / CHECKPOINTS, world)
    trainer = Trainer(job, placement, world, found)
    try:
        trainer.run()
        weights.write(trainer.final_weights(), job.scratch, world.leads)
        world.broadcast(None)
    except Spike as spike:
        # The checkpoint under way is one to go back to.
        trainer.commit()
        return spike.with_traceback(None)
    finally:
        trainer.close()
    return None


class Trainer:
    """The engine, the batches and the files of one running training."""

    def __init__(
        self,
        job: TrainJob,
        placement: Placement,
        world: World,
        found: checkpoint.Checkpoint | None,
    ) -> None:
        self.job, self.world = job, world
        # Every rank draws the same first weights, and keeps its part where they are sharded.
        torch.default_generator.manual_seed(job.seed)
        shards = Shards(world.rank, world.size) if placement.zero_stage == 3 else None
        with asked(shards):
            self.program = job.build()
        self.identity = job.identity(state.describe(self.program.module))
        self._check_space()
        self.done, self.tokens = 0, 0
        # Before the network is divided: what is read is whole, whoever wrote it.
        read = self._load_weights(found, shards) if found else None
        self._start(placement, shards)
        self._recall(found)
        if read:
            made = self.done - self.scale.skipped
            state.load_moments(self.engine, self.layout, read, made)
        self.most = job.optimizer.clip or math.inf
        hang = {"timeout": placement.hang_seconds, "exit": True, "file": STDERR}
        # It waits in C: a step that hangs with the interpreter's lock is ended too.
        self.alive = partial(faulthandler.dump_traceback_later, **hang)
        self.traced_steps = placement.profile_steps
        self.stop = threading.Event()
        self.saved_at = time.monotonic()
        self.writing: checkpoint.Writing | None = None
        # A checkpoint is written from the tensors themselves where they are in main memory.
        self.lends = world.device.type == "cpu" or placement.offload is not None
        # In fp16 a step is made or not by what came of it.
        self.behind = int(reads_late(world) and job.precision != "fp16")
        self.unread, self.told_at = deque[Unread](), 0.0
        self.peak_flops = 0.0  # of all devices
        if job.flops_per_token:
            self.peak_flops = peak_flops(world.device, job.precision) * world.size
        if world.leads:
            self.metrics = MetricsFile(job.scratch, after=self.done)
            self.reporter = Reporter(job.scratch, job.steps, job.tracker, job.on_progress)
            self.reporter.final(self.done)

    def _check_space(self) -> None:
        """Raise BadInput where the disk has no room for the checkpoints."""
        job, parameters = self.job, self.program.module.parameters()
        size = 12 * sum(p.numel() for p in parameters if p.requires_grad)  # with two moments
        more = len(job.kept_steps)
        if more or math.isfinite(job.checkpoint_seconds):
            folder = job.scratch / CHECKPOINTS
            self.world.agree(lambda: checkpoint.check_space(folder, size, more))

    def _load_weights(self, found: checkpoint.Checkpoint, shards: Shards | None) -> state.Read:
        """Go on with a checkpoint's weights; what reads the rest of it."""
        found.check_job(self.identity)
        self.done, self.tokens = found.step, found.tokens
        read = whole_reader(checkpoint.reader(found), self.program.module, found.team)
        state.load_weights(self.program.module, read, shards)
        log.info("going on from %s", found.path)
        return read

    def _start(self, placement: Placement, shards: Shards | None) -> None:
        """Divide the network as the placement says, and start its engine."""
        module, world = self.program.module, self.world
        self.together = placement.context_parallel * placement.tensor_parallel
        if placement.context_parallel > 1:
            split_context_of(module, world, placement.context_parallel)
        self.layout = divided(module, world, placement.tensor_parallel)
        share = self.job.share(world.size // self.together, self.job.batch_samples)
        self.engine, self.peaks = start_engine(
            self.job, self.program, placement, self.layout, share, shards
        )

    def _recall(self, found: checkpoint.Checkpoint | None) -> None:
        """What the steps before tell: skipped batches, last losses, loss scale, best weights."""
        job, world = self.job, self.world
        told = world.broadcast(history(job, self.done) if world.leads else None)
        skipped, losses, self.scale, self.looks = told
        self.feed = Feed(job, self.program, world, self.together, skipped)
        self.losses = LossWatch(losses) if job.most_skipped else None
        self.best: dict[str, Tensor] = {}
        if found and self.looks.best is not None and world.leads:
            self.best = state.read_best(self.program.module, checkpoint.reader(found))

    def run(self) -> None:
        """All steps that are left, and checkpoints between them."""
        first = self.done + 1
        traced_steps = self.traced_steps if self.world.leads else 0
        with (
            terminated(self.stop),
            traced(self.job.trace, traced_steps) as made_step,
            Prefetcher(self.feed.fetch, first, self.job.steps) as batches,
        ):
            for step in range(first, self.job.steps + 1):
                self.alive()
                self.unread.append(self.step(step, batches))
                made_step()
                self.done = step
                last = step == self.job.steps
                asked = self.tell(0 if last or self.looked_at(step) else self.behind)
                if asked.written:
                    self.commit()
                if self.looks.over:
                    break
                some = step > self.scale.skipped  # of an optimizer that never stepped there is none
                kept = step in self.job.kept_steps or asked.stop or asked.save
                if some and (self.job.keep_state if last else kept):
                    self.tell(0)
                    self.save()
                if asked.stop and not last:
                    self.commit()
                    raise Preempted(
                        f"training was asked to stop and has saved step {step} of "
                        f"{self.job.steps}; run the same command again to go on"
                    )
        self.commit()

    def looked_at(self, step: int) -> bool:
        """Whether the network is put to some test after a step."""
        return self.looks.due(step) or bool(self.job.exams and step in self.job.exams.steps)

    def tell(self, left: int) -> Asked:
        """Finish the rows of all steps but the last `left`; what the ranks ask for after them."""
        asked = Asked()
        while len(self.unread) > left:
            one = self.unread.popleft()
            row, step = self.row(one), one.row["step"]
            if self.looks.due(step):
                row[VALIDATION] = self.look(step)
            if (exams := self.job.exams) and step in exams.steps:
                row |= sit(exams, self.engine, self.layout, self.world, self.alive)
            if self.world.leads:
                self.metrics.append(row)
                self.reporter.progress(row)
            asked |= one.asked
        return asked

    def look(self, step: int) -> float:
        """The loss on the validation rows; the best weights are kept."""
        self.alive()
        loss = mean_loss(self.engine, self.program.validation, self.world.device)
        loss = self.world.broadcast(loss)  # on GPUs the ranks may differ in the last bit
        if self.looks.add(step, loss):
            self.best = state.copy_weights(self.engine, self.layout, self.world.leads)
        return loss

    def final_weights(self) -> Iterable[tuple[str, Tensor]]:
        """The weights that training ends with: the best, which the leading rank has, or the last,
        of which all ranks gather one after another.
        """
        if self.looks.best not in (None, self.done):
            log.info("back to step %d, whose validation loss is lowest", self.looks.best)
            return self.best.items()
        return state.named_weights(self.engine, self.layout)

    def step(self, step: int, batches: Prefetcher) -> Unread:
        """One optimizer step, with what the ranks together ask for after it."""
        started = time.monotonic()
        pieces, weights, tokens = self.feed.take(step, batches)
        taken = time.monotonic()
        seed_dropout(self.job.seed, step, self.world, self.layout.data_rank)
        names, mine = gradients(self.engine, pieces, weights, self.scale.value)
        due, rate, scale = self.due(started), self.rate(step), self.scale.told()
        if self.behind:
            _, tokens, asked = self.agree([], tokens, due)
            updating = time.monotonic()
            figures = self.ahead(step, mine, rate)
        else:
            found, tokens, asked = self.agree(mine.tolist(), tokens, due)
            self.watch(step, found[0])
            updating = time.monotonic()
            norm = self.update(step, found[0], rate)
            figures = partial(list, [*found, norm])
        self.tokens += int(tokens)
        row = {
            "step": step,
            "lr": rate * self.job.optimizer.learning_rate,
            **{f"lr/{name}": rate * peak for name, peak in self.peaks},
            "tokens": self.tokens,
            "own_tokens": tokens,
            "data_seconds": round(taken - started, 6),
            "update_seconds": round(time.monotonic() - updating, 6),
            **scale,
        }
        return Unread(row, started, asked, names, figures)

    def row(self, one: Unread) -> Row:
        """The whole row of a step. Raises Spike for a step that should not have been made."""
        loss, *told, norm = one.figures()
        ended, row = time.monotonic(), dict(one.row)
        seconds = ended - max(one.started, self.told_at)
        self.told_at = ended
        return {
            "step": row.pop("step"),
            "loss": loss,
            "grad_norm": norm,
            **speed(row.pop("own_tokens"), seconds, self.job.flops_per_token, self.peak_flops),
            "memory_bytes": memory_bytes(self.world.device),
            **row,
            **dict(zip(one.names, told, strict=True)),
        }

    def ahead(self, step: int, mine: Tensor, rate: float) -> Callable[[], list[float | None]]:
        """Have the device step, whatever comes of it; a function that reads the figures of the step
        later, and raises Spike where it should not have been made.
        """
        norm = self.advance(rate, clipped(self.engine, self.layout, self.scale.value, self.most))
        means, own = self.world.mean_later(mine), self.world.later(norm.double().view(1))

        def read() -> list[float | None]:
            loss, *told = means()
            (norm,) = own()
            self.watch(step, loss)
            if not (math.isfinite(loss) and math.isfinite(norm)):
                raise Spike(step, f"loss {loss}, gradient norm {norm}")
            return [loss, *told, norm]

        return read

    def agree(
        self, figures: list[float], tokens: float, due: bool
    ) -> tuple[list[float], float, Asked]:
        """Of all ranks together: means of figures, tokens, and what they ask for."""
        written = self.writing is not None and self.writing.written
        # Sums, so that every rank reads the same answer; only the leader's clock says what is due.
        flags = (self.stop.is_set(), due and self.world.leads, written)
        sums = self.world.sum([tokens, *map(float, flags), *figures])
        size, (stop, save, done) = self.world.size, sums[1:4]
        asked = Asked(stop > 0, save > 0, done == size)
        return [value / size for value in sums[4:]], sums[0] / self.together, asked

    def due(self, now: float) -> bool:
        """Whether it is time for a checkpoint."""
        return now - self.saved_at > self.job.checkpoint_seconds

    def rate(self, step: int) -> float:
        """The share of the peak learning rate that a step takes."""
        clock = self.job.batches.clock
        return factor(clock(step), clock(self.job.steps), self.job.optimizer)

    def watch(self, step: int, loss: float) -> None:
        """Raise Spike when the loss is out of all proportion to those before it."""
        if self.losses and (usual := self.losses.usual(loss)):
            raise Spike(step, f"loss {loss:.4g}, where {usual:.4g} is usual")

    def update(self, step: int, loss: float, rate: float) -> float | None:
        """Step the optimizer; the gradient norm before clipping. None: it overflowed in fp16, and
        the step was skipped.

        Loss and norm are the same on every rank, so all of them raise Spike or none does. The
        norm is known before the step in ZeRO 0; ZeRO 1-3 skip the step by themselves.
        """
        known = clipped(self.engine, self.layout, self.scale.value, self.most)
        norm = math.nan if known is None else known.item()
        if math.isfinite(loss) and (known is None or math.isfinite(norm)):
            norm = float(self.advance(rate, known))
        overflow = not math.isfinite(norm)
        if not math.isfinite(loss) or (overflow and not self.scale.lowers):
            raise Spike(step, f"loss {loss}, gradient norm {norm}")
        self.scale.update(overflow=overflow)
        if overflow and known is not None:
            discard(self.engine)
        return None if overflow else norm

    def advance(self, rate: float, norm: Tensor | None) -> Tensor:
        """Step the optimizer at a share of the peak rates; the gradient norm before clipping."""
        if self.writing and self.lends:
            # The update would write over what is still being read.
            self.writing.wait_read()
        return advance(self.engine, [rate * peak for _, peak in self.peaks], norm)

    def save(self) -> None:
        """Begin a checkpoint, after the one that is being written."""
        self.commit()
        state.check_alike(self.engine, self.world, self.layout, self.done)
        if self.world.leads:
            # Before the checkpoint: from these rows a training that goes on has its loss scale.
            self.metrics.sync()
        best = {f"{state.BEST}{name}@0": tensor for name, tensor in self.best.items()}
        self.writing = checkpoint.Writing(
            self.job.scratch / CHECKPOINTS,
            self.world,
            state.share(self.engine, self.layout) | best,
            step=self.done,
            tokens=self.tokens,
            job=self.identity,
            team=self.layout.team.size,
            kept=self.job.kept_steps,
        )
        self.saved_at = time.monotonic()

    def commit(self) -> None:
        """Finish the checkpoint that is being written, if one is; rows up to it are final then."""
        writing, self.writing = self.writing, None
        if writing:
            writing.commit()
            if self.world.leads:
                self.reporter.final(writing.step)

    def close(self) -> None:
        """Free the engine and close the files."""
        faulthandler.cancel_dump_traceback_later()
        if self.writing:
            self.writing.wait()
        self.engine.destroy()
        if self.world.leads:
            self.metrics.close()
