"""The worker of scheduled runs, started by `services.up` as `python -m cluster.prefect_worker`.

What a deployment runs, where and with which variables, it reads in the home, where `headrace
deploy` wrote it: the server says when, and never what.
"""

import asyncio
import os
import time
from typing import Any

from prefect import Flow
from prefect.client.schemas.objects import FlowRun
from prefect.utilities.processutils import setup_signal_handlers_worker
from prefect.workers import process
from prefect.workers.process import ProcessJobConfiguration, ProcessWorker

from cluster.deployments import deployed
from cluster.services import WORK_POOL, alive, answers, given_prefect, watch
from cluster.watchdog import UNATTENDED_SECONDS


class OwnRun(ProcessJobConfiguration):
    """How a run is started: nothing that its deployment, its pool or itself asks for counts."""

    def prepare_for_flow_run(self, flow_run: FlowRun, *arguments: Any, **about: Any) -> None:
        """Fill in Prefect's own words about the run. Raises BadInput for what is none of ours."""
        ours = deployed(flow_run.deployment_id)
        self.command, self.working_dir = None, ours.folder
        self.env: dict[str, str | None] = {**ours.variables}
        super().prepare_for_flow_run(flow_run, *arguments, **about)
        # Prefect would else ask the server where the flow is, and for the steps to get it there.
        self.env["PREFECT__FLOW_ENTRYPOINT"] = ours.entrypoint
        self._command_configured = True


async def _without_hooks(flow_run: FlowRun, *_: Any, **__: Any) -> Flow[..., Any]:
    """The flow of a run that was killed, wanted for its hooks: those of Headrace have none."""
    return Flow(lambda: None, name="headrace")


def _wait_for_server() -> None:
    """Wait until our server answers: a worker that starts without one never hears of cancelled
    runs.
    """
    while given_prefect() is None and not (
        (server := alive("prefect")) and answers("prefect", str(server.url), ours=True)
    ):
        time.sleep(1)


def main() -> None:
    """Work until killed. On a server of the user's own, who may deploy there is for them to say."""
    if given_prefect() is None:
        ProcessWorker.job_configuration = OwnRun
        process.load_flow_from_flow_run = _without_hooks
    watch(UNATTENDED_SECONDS)
    _wait_for_server()
    setup_signal_handlers_worker(os.getpid(), "the worker", print)
    asyncio.run(ProcessWorker(name="headrace", work_pool_name=WORK_POOL).start(printer=print))


if __name__ == "__main__":
    main()
