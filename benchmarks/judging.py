"""2,000 judge calls against a local endpoint of 200 ms and 64 slots; deepeval on the same work.

    python benchmarks/judging.py [PYTHON]

The endpoint is a process of its own. Ideal is calls x latency / slots. PYTHON is the interpreter of
a virtual environment with deepeval 4.3.1, which runs GEval with given steps at the same
concurrency, one request a case. Both make one call before the clock starts, for their imports.
"""

import asyncio
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

CALLS, LATENCY, SLOTS = 2000, 0.2, 64
BODY = json.dumps(
    {
        "id": "x",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": '{"score": 4, "reason": "fine"}'},
            }
        ],
        "usage": {"prompt_tokens": 50, "completion_tokens": 5, "total_tokens": 55},
    }
).encode()
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(
    BODY
)


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, slots: Any) -> None:
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = next(
                int(line.split(b":")[1])
                for line in head.split(b"\r\n")
                if line.lower().startswith(b"content-length")
            )
            await reader.readexactly(length)
            async with slots:
                await asyncio.sleep(LATENCY)
            writer.write(HEAD + BODY)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


def _serve(port: Any) -> None:
    async def serve() -> None:
        slots = asyncio.Semaphore(SLOTS)
        server = await asyncio.start_server(lambda r, w: _answer(r, w, slots), "127.0.0.1", 0)
        port.put(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(serve())


def _headrace(url: str) -> tuple[float, float]:
    from tasks.evaluation.judging.client import EndpointJudge
    from tasks.evaluation.judging.endpoint import Endpoint
    from tasks.evaluation.judging.questions import Distribution, Question
    from tasks.evaluation.judging.reply_store import ReplyStore

    with tempfile.TemporaryDirectory() as folder:
        judge = EndpointJudge(
            Endpoint(url, "m", concurrency=SLOTS), ReplyStore(Path(folder) / "replies.sqlite")
        )
        scale = tuple("12345")
        questions = [
            Question("Rate it.", "Rate it.", (("answer", f"answer {i}"),), "Score:", scale)
            for i in range(CALLS)
        ]
        judge.distributions([Question("Rate it.", "Rate it.", (("answer", "?"),), "Score:", scale)])
        started, used = time.perf_counter(), time.process_time()
        verdicts = judge.distributions(questions)
        seconds = time.perf_counter() - started, time.process_time() - used
    assert all(isinstance(v, Distribution) for v in verdicts)
    assert judge.calls == CALLS + 1
    return seconds


def _deepeval(url: str) -> tuple[float, float]:
    os.environ |= {"DEEPEVAL_TELEMETRY_OPT_OUT": "YES", "OPENAI_API_KEY": "none"}
    from deepeval import evaluate
    from deepeval.evaluate import AsyncConfig, CacheConfig, DisplayConfig
    from deepeval.metrics import GEval
    from deepeval.models import LocalModel
    from deepeval.test_case import LLMTestCase, LLMTestCaseParams

    model = LocalModel(model="m", base_url=url, api_key="none")
    asked = [LLMTestCaseParams.ACTUAL_OUTPUT]
    metric = GEval("fluency", asked, evaluation_steps=["Rate it."], model=model)
    cases = [LLMTestCase(input="?", actual_output=f"answer {i}") for i in range(CALLS)]
    metric.measure(cases[0], _show_indicator=False)
    started, used = time.perf_counter(), time.process_time()
    evaluate(
        cases,
        [metric],
        async_config=AsyncConfig(max_concurrent=SLOTS, throttle_value=0),
        display_config=DisplayConfig(show_indicator=False, print_results=False),
        cache_config=CacheConfig(write_cache=False),
    )
    return time.perf_counter() - started, time.process_time() - used


def _elsewhere(python: str, url: str) -> tuple[float, float]:
    """deepeval in its own environment."""
    with tempfile.TemporaryDirectory() as folder:
        command = [python, str(Path(__file__).resolve()), "--deepeval", url]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    wall, cpu = json.loads(done.stdout.splitlines()[-1])
    return wall, cpu


def main() -> None:
    """Time the calls, print the share over ideal."""
    if sys.argv[1:2] == ["--deepeval"]:
        print(json.dumps(_deepeval(sys.argv[2])))
        return
    port: Any = multiprocessing.Queue()
    server = multiprocessing.Process(target=_serve, args=(port,), daemon=True)
    server.start()
    url = f"http://127.0.0.1:{port.get()}/v1"
    ideal = CALLS * LATENCY / SLOTS
    print(f"{'ideal':12}{ideal:8.2f} s")
    runs = {"headrace": _headrace(url)}
    if len(sys.argv) > 1:
        runs["deepeval"] = _elsewhere(sys.argv[1], url)
    for name, (wall, cpu) in runs.items():
        print(f"{name:12}{wall:8.2f} s {100 * (wall / ideal - 1):+6.1f} %  {cpu:6.2f} CPU s")
    server.terminate()


if __name__ == "__main__":
    main()
