"""What the Prefect server does by itself about the runs of a deployment.

A run whose heartbeat stops without an end is marked as Crashed: its process, its worker or its
host is gone. Who is to be told of runs that fail gets a message through a block of Prefect's.
"""

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from cluster.errors import BadInput
from cluster.prefect_server import client

if TYPE_CHECKING:
    from prefect.events.schemas.automations import AutomationCore

HEARTBEAT = "prefect.flow-run.heartbeat"
PENDING, RUNNING = "prefect.flow-run.Pending", "prefect.flow-run.Running"
HEARTBEAT_SECONDS = 30  # as often as Prefect sends them at most
SILENCE = timedelta(seconds=6 * HEARTBEAT_SECONDS)
STATES = (
    *("Completed", "Failed", "Cancelled", "Crashed"),
    *("Paused", "Suspended", "AwaitingRetry", "Scheduled", "AwaitingConcurrencySlot"),
    "Cancelling",
)
"""Those in which no heartbeat is due: a run has ended, or waits, or its worker is ending it."""
SUBJECT = "{{ flow_run.name }}: {{ flow_run.state.name }}"
BODY = "{{ flow_run.state.message }} ({{ deployment.name }}, flow run {{ flow_run.id }})"


def block(notify: str, name: str) -> UUID:
    """The notification block that `notify` says: `TYPE/NAME` of one that the server has, or a URL,
    to which each message is posted as JSON, `{"text": ...}`. Raises BadInput for neither.
    """
    from prefect.exceptions import ObjectNotFound

    if "://" in notify:
        return _posting_to(notify, name)
    kind, slash, own = notify.partition("/")
    if not slash or not own:
        raise BadInput(f"--notify {notify}: write TYPE/NAME of a block, or a URL")
    try:
        with client() as server:
            return server.read_block_document_by_name(own, kind).id
    except ObjectNotFound as error:
        raise BadInput(
            f"--notify {notify}: the Prefect server has no such block; its page Blocks makes one, "
            "or give the URL of a webhook"
        ) from error


def look_after(deployment_id: str, name: str, told: UUID | None, start: timedelta) -> None:
    """Give a deployment its automations: `told` is the block that gets word of runs that failed,
    `start` how long a run may take from its worker's start of it to its first heartbeat.

    They go with the deployment. Those that it had before are gone: Prefect removes them when a
    deployment is replaced.
    """
    wanted = [
        _unheard(deployment_id, f"{name}: runs that never began", {PENDING}, start),
        # One may die before its first heartbeat.
        _unheard(deployment_id, f"{name}: runs that are gone", {HEARTBEAT, RUNNING}, SILENCE),
    ]
    wanted += [_failures(deployment_id, name, told)] if told else []
    with client() as server:
        for automation in wanted:
            server.create_automation(automation)


def _unheard(
    deployment_id: str, name: str, after: set[str], silence: timedelta
) -> "AutomationCore":
    """Runs of which nothing is heard after some event."""
    from prefect.automations import ChangeFlowRunState
    from prefect.client.schemas.objects import StateType

    gone = ChangeFlowRunState(
        state=StateType.CRASHED,
        name="Crashed",
        message=f"Nothing was heard of it for {silence.total_seconds():.0f} seconds: its process "
        "or its worker is gone.",
    )
    states = {f"prefect.flow-run.{state}" for state in STATES}
    return _automation(
        deployment_id,
        name,
        gone,
        after=after,
        expect={HEARTBEAT, *states} | ({RUNNING} - after),
        for_each={"prefect.resource.id"},
        posture="Proactive",
        within=silence,
    )


def _failures(deployment_id: str, name: str, told: UUID) -> "AutomationCore":
    """Runs that failed for good, or crashed."""
    from prefect.automations import SendNotification

    message = SendNotification(block_document_id=told, subject=SUBJECT, body=BODY)
    ends = {"prefect.flow-run.Failed", "prefect.flow-run.Crashed"}
    return _automation(
        deployment_id, f"{name}: runs that failed", message, expect=ends, posture="Reactive"
    )


def _automation(deployment_id: str, name: str, action: Any, **triggered: Any) -> "AutomationCore":
    """Take an action when a run of the deployment, whose automation this is, sends such events."""
    from prefect.events.schemas.automations import AutomationCore, EventTrigger

    owner = f"prefect.deployment.{deployment_id}"
    trigger = EventTrigger.model_validate(
        {
            "match": {"prefect.resource.id": "prefect.flow-run.*"},
            "match_related": {
                "prefect.resource.role": "deployment",
                "prefect.resource.id": owner,
            },
            **triggered,
        }
    )
    return AutomationCore(name=name, trigger=trigger, actions=[action], owner_resource=owner)


def _posting_to(url: str, name: str) -> UUID:
    """The block of a deployment that posts to a URL, which is kept as a secret."""
    from prefect.blocks.notifications import CustomWebhookNotificationBlock

    slug = re.sub("[^a-z0-9]+", "-", f"headrace-{name}".lower()).strip("-")
    posts = CustomWebhookNotificationBlock.model_validate(
        {
            "name": slug,
            "url": "{{url}}",
            "secrets": {"url": url},
            "json_data": {"text": "{{subject}}\n{{body}}"},
        }
    )
    return cast(UUID, posts.save(slug, overwrite=True))  # a coroutine only in an event loop
