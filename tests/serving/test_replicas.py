"""Replicas of a service on a cluster: one of them by itself, and several behind Ray Serve."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from model.generation.engine import Capacity
from tasks.inference.generation import GenerationSettings, generate_text
from tasks.serving.app import Limits
from tasks.serving.replicas import Plan, Replica, deployed
from tests.published import published_folder

KEY = {"Authorization": "Bearer secret"}


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    folder = published_folder(tmp_path_factory.mktemp("published"))
    room = Capacity(rows=4, waiting=4)
    return Plan(
        folder, "pub", room, Limits(), {"text": "a book"}, "fp32", threads=1, gpus=0, key="secret"
    )


def test_a_replica_answers_by_the_services_application(plan: Plan) -> None:
    """As Ray Serve asks it: built, started, looked after, ended."""
    import asyncio

    pytest.importorskip("grpc_reflection")
    from ray import serve

    async def answered() -> Any:
        replica = serve.ingress()(Replica).__new__(Replica)
        Replica.__init__(replica, plan)
        app = replica.__serve_build_asgi_app__()
        with pytest.raises(RuntimeError, match="the engine has ended"):
            replica.check_health()
        async with app.router.lifespan_context(app):
            replica.check_health()
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://a") as client:
                body = {"prompt": "say one", "max_tokens": 8, "temperature": 0}
                assert (await client.post("/v1/completions", json=body)).status_code == 401
                return await client.post("/v1/completions", json=body, headers=KEY)

    reply = asyncio.run(answered())
    alone = generate_text(plan.folder, "say one", GenerationSettings(max_tokens=8))
    assert reply.json()["choices"][0]["text"] == alone["text"]


@pytest.mark.slow
def test_the_command_ends_after_what_its_replicas_are_answering(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_API_KEY", "secret")
    words = ["serve", str(plan.folder), "--replicas", "1", "--port", "0", "--json"]
    body = {"prompt": "say", "max_tokens": 100, "temperature": 0, "stream": True}
    command = [sys.executable, "-m", "flows.cli", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        with httpx.stream(
            "POST", f"{url}/v1/completions", json=body, headers=KEY, timeout=300
        ) as reply:
            lines = reply.iter_lines()
            next(lines)
            process.send_signal(signal.SIGTERM)
            assert [line for line in lines if line][-1] == "data: [DONE]"
        assert process.wait(120) == 143


@pytest.fixture(scope="module")
def url(plan: Plan, ray_session: None) -> Iterator[str]:
    pytest.importorskip("grpc_reflection")
    with deployed(plan, 2, "127.0.0.1", 0) as found:
        yield found


def post(url: str, **body: Any) -> httpx.Response:
    asked = {"temperature": 0, "max_tokens": 8} | body
    return httpx.post(f"{url}/v1/completions", json=asked, headers=KEY, timeout=300)


@pytest.mark.slow
def test_replicas_share_the_work_and_answer_as_one(plan: Plan, url: str) -> None:
    prompts = [f"say {n}" for n in range(12)]
    with ThreadPoolExecutor(3) as pool:
        replies = list(pool.map(lambda prompt: post(url, prompt=prompt).json(), prompts))
    settings = GenerationSettings(max_tokens=8)
    alone = [generate_text(plan.folder, prompt, settings)["text"] for prompt in prompts]
    assert [reply["choices"][0]["text"] for reply in replies] == alone
    assert httpx.get(f"{url}/health").json() == {"status": "ok"}


@pytest.mark.slow
def test_pieces_come_as_they_are_written(url: str) -> None:
    body = {"prompt": "say", "max_tokens": 100, "temperature": 0, "stream": True}
    with httpx.stream(
        "POST", f"{url}/v1/completions", json=body, headers=KEY, timeout=300
    ) as reply:
        lines = [line for line in reply.iter_lines() if line.startswith("data: ")]
    assert lines[-1] == "data: [DONE]" and len(lines) > 10
    text = "".join(json.loads(line[6:])["choices"][0]["text"] for line in lines[:-1])
    assert text == post(url, prompt="say", max_tokens=100).json()["choices"][0]["text"]


@pytest.mark.slow
def test_full_replicas_tell_clients_to_come_again(url: str) -> None:
    with ThreadPoolExecutor(48) as pool:
        asked = [pool.submit(post, url, prompt=f"say {n}", max_tokens=100) for n in range(48)]
        replies = [one.result() for one in asked]
    assert {reply.status_code for reply in replies} == {200, 429}
    refused = next(reply for reply in replies if reply.status_code == 429)
    assert int(refused.headers["Retry-After"]) >= 1
