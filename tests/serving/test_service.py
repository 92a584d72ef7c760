"""A model behind OpenAI's interface: asked by its own client, broken into, left, overrun."""

import asyncio
import contextlib
import importlib.util
import json
import socket
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from cluster.errors import BadInput
from model.generation.engine import Capacity
from tasks.inference.generation import GenerationSettings, generate_text, load_model
from tasks.serving import app
from tasks.serving.app import Limits, application
from tasks.serving.protocol import CompletionRequest
from tasks.serving.run import listening
from tasks.serving.service import Service
from tests.published import published_folder

FAULTS = Path(__file__).parents[2] / "benchmarks/serving_faults.py"
KEY = {"Authorization": "Bearer secret"}
GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 8}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return published_folder(tmp_path_factory.mktemp("published"))


@contextlib.contextmanager
def served(folder: Path, limits: Limits = Limits(), **capacity: int) -> Iterator[str]:  # noqa: B008
    """The URL of a server in this process, on a free port."""
    import uvicorn

    service = Service(folder, "pub", Capacity(**capacity), {"text": "a book"})
    service.start()
    with listening("127.0.0.1", 0) as socket:
        config = uvicorn.Config(application(service, limits, "secret"), log_level="error")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=lambda: server.run(sockets=[socket]))
        thread.start()
        yield f"http://127.0.0.1:{socket.getsockname()[1]}"
        server.should_exit = True
        thread.join()
        service.close(1)


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    with served(folder, Limits(body_bytes=10_000), rows=8, chunk=16) as found:
        yield found


def post(url: str, path: str, **body: Any) -> httpx.Response:
    return httpx.post(f"{url}/v1/{path}", json=body, headers=KEY, timeout=60)


def text_of(url: str, prompt: str, **more: Any) -> str:
    reply = post(url, "completions", prompt=prompt, **(GREEDY | more))
    return str(reply.json()["choices"][0]["text"])


def test_a_completion_is_what_generate_says(url: str, folder: Path) -> None:
    settings = GenerationSettings(decoding="sample", temperature=0.8, seed=5, max_tokens=8)
    alone = generate_text(folder, "say one", settings)
    asked = {"prompt": "say one", "max_tokens": 8, "temperature": 0.8, "seed": 5, "logprobs": 0}
    reply = post(url, "completions", **asked).json()
    (choice,) = reply["choices"]
    assert choice["text"] == alone["text"]
    assert choice["logprobs"]["token_logprobs"] == pytest.approx(alone["logprobs"], abs=1e-4)
    assert reply["usage"] == {"prompt_tokens": 3, "completion_tokens": 8, "total_tokens": 11}


def test_answers_do_not_depend_on_company(url: str) -> None:
    prompts = [f"say {'one ' * (i % 7)}{i}" for i in range(24)]
    alone = [text_of(url, prompt) for prompt in prompts]
    with ThreadPoolExecutor(24) as pool:
        assert list(pool.map(lambda prompt: text_of(url, prompt), prompts)) == alone


def test_an_echo_tells_how_likely_the_prompt_is(url: str, folder: Path) -> None:
    import torch

    asked = {"prompt": "say two again", "max_tokens": 0, "echo": True, "logprobs": 1}
    (choice,) = post(url, "completions", **asked).json()["choices"]
    network, encoder = load_model(folder)
    ids = [*encoder.opening, *encoder.encode("say two again")]
    with torch.inference_mode():
        scores = network.logits(network(torch.tensor([ids])))[0, :, : encoder.ids].log_softmax(-1)
    told = choice["logprobs"]
    assert choice["text"] == "say two again" and told["token_logprobs"][0] is None
    direct = [float(scores[i, id_]) for i, id_ in enumerate(ids[1:])]
    assert told["token_logprobs"][1:] == pytest.approx(direct, abs=1e-4)
    begin = told["text_offset"][1]
    assert "say two again"[begin:].startswith(told["tokens"][1])


def test_a_character_of_several_tokens_is_counted_once(url: str) -> None:
    asked = {"prompt": "\u4e00one", "max_tokens": 0, "echo": True, "logprobs": 0}
    (choice,) = post(url, "completions", **asked).json()["choices"]
    told = choice["logprobs"]
    pairs = list(zip(told["tokens"], told["text_offset"], strict=True))
    assert sum(token.startswith("bytes:") for token, _ in pairs) > 1
    assert next(begin for token, begin in pairs if token.startswith("o")) == 1


def test_texts_become_tokens_and_tokens_texts(url: str, folder: Path) -> None:
    """Marks count as such, as other servers' clients expect."""
    _, encoder = load_model(folder)
    bare = {"prompt": "say</s>one", "add_special_tokens": False}
    told = httpx.post(f"{url}/tokenize", json=bare, headers=KEY).json()
    assert told["tokens"] == [*encoder.encode("say"), 2, *encoder.encode("one")]
    whole = httpx.post(f"{url}/tokenize", json={"prompt": "say"}, headers=KEY).json()
    assert whole["tokens"] == [1, *encoder.encode("say")] and whole["count"] == len(whole["tokens"])
    back = {"tokens": told["tokens"]}
    assert httpx.post(f"{url}/detokenize", json=back, headers=KEY).json() == {
        "prompt": "say</s>one"
    }
    refused = httpx.post(f"{url}/detokenize", json={"tokens": [400]}, headers=KEY)
    assert refused.status_code == 400 and "400 is no token" in refused.text
    about = httpx.get(f"{url}/tokenizer_info", headers=KEY).json()
    assert (about["bos_token"], about["eos_token"]) == ("<s>", "</s>")
    assert "bos_token" in about["chat_template"]


def test_openais_own_client_is_answered(url: str) -> None:
    openai = pytest.importorskip("openai")
    with openai.OpenAI(base_url=f"{url}/v1", api_key="secret") as client:
        assert [model.id for model in client.models.list()] == ["pub"]
        said: list[dict[str, str]] = [{"role": "user", "content": "say one"}]
        asked = {"model": "pub", "messages": said, "max_tokens": 6, "seed": 1, "n": 2}
        whole = client.chat.completions.create(**asked, logprobs=True, top_logprobs=2)
        assert len(whole.choices) == 2 and whole.usage.completion_tokens == 12
        assert len(whole.choices[0].logprobs.content[0].top_logprobs) == 2
        texts = {0: "", 1: ""}
        for chunk in client.chat.completions.create(**asked, stream=True):
            for choice in chunk.choices:
                texts[choice.index] += choice.delta.content or ""
        assert list(texts.values()) == [choice.message.content for choice in whole.choices]
        with pytest.raises(openai.AuthenticationError):
            client.with_options(api_key="other").models.list()
        with pytest.raises(openai.NotFoundError, match="this server has 'pub'"):
            client.completions.create(model="gpt", prompt="a")


def test_texts_are_embedded(url: str, folder: Path) -> None:
    import base64

    import numpy as np

    from tasks.evaluation.embedding.contextual import embed_texts

    texts = ["say one", "two again and again"]
    network, encoder = load_model(folder)
    direct, tokens = embed_texts(network, encoder, texts, 2)
    reply = post(url, "embeddings", input=texts, model="pub").json()
    np.testing.assert_allclose([one["embedding"] for one in reply["data"]], direct, atol=1e-5)
    assert reply["usage"]["total_tokens"] == tokens
    packed = post(url, "embeddings", input=texts[0], encoding_format="base64").json()
    raw = base64.b64decode(packed["data"][0]["embedding"])
    np.testing.assert_allclose(np.frombuffer(raw, "<f4"), direct[0], atol=1e-5)
    assert post(url, "embeddings", input=["a", ""]).status_code == 400


def test_a_stop_text_ends_an_answer_before_it(url: str) -> None:
    whole = text_of(url, "say one", logit_bias={"65": 8, "66": 8}, temperature=1, seed=2)
    stop = whole[3:5]
    cut = text_of(url, "say one", logit_bias={"65": 8, "66": 8}, temperature=1, seed=2, stop=[stop])
    assert cut == whole[: whole.index(stop)]


def test_an_answer_has_the_form_that_is_asked_for(url: str) -> None:
    pytest.importorskip("llguidance")
    form = {"type": "regex", "regex": "(yes|no), [0-9]{3}"}
    text = text_of(url, "say", response_format=form, max_tokens=30)
    assert text.startswith(("yes, ", "no, ")) and text[-3:].isdigit()
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    schema["additionalProperties"] = False
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    found = json.loads(text_of(url, "say", response_format=form, max_tokens=60))
    assert found.keys() == {"ok"}
    assert post(url, "completions", prompt="a", response_format={"type": "xml"}).status_code == 400


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"{", 400, "not JSON"),
        (b"[]", 400, "a JSON object"),
        (b'"\xff"', 400, "not JSON"),
        (b"[" * 5000, 400, "not JSON"),
        (b'{"prompt": 1e999}', 400, "prompt"),
        (b'{"prompt": "a", "temperature": NaN}', 400, "NaN"),
        (b'{"prompt": "a", "max_tokens": -1}', 400, "max_tokens"),
        (b'{"prompt": "a", "maxtokens": 1}', 400, "maxtokens"),
        (b'{"prompt": "a", "max_tokens": 1000}', 400, "context of 128"),
        (b'{"prompt": [100000]}', 400, "no token"),
        (b'{"prompt": "a", "logit_bias": {"x": 1}}', 400, "x is no token"),
        (b'{"prompt": "a", "suffix": "b"}', 400, "suffix"),
        (b'{"prompt": "' + b"a" * 20_000 + b'"}', 413, "10000 bytes"),
    ],
)
def test_a_bad_request_is_refused(url: str, body: bytes, status: int, said: str) -> None:
    reply = httpx.post(f"{url}/v1/completions", content=body, headers=KEY)
    assert reply.status_code == status and said in reply.json()["error"]["message"]


def test_who_has_no_key_gets_nothing(url: str) -> None:
    assert httpx.post(f"{url}/v1/completions", json={"prompt": "a"}).status_code == 401
    assert httpx.get(f"{url}/v1/models", headers={"Authorization": "Bearer s"}).status_code == 401
    assert httpx.get(f"{url}/nothing").status_code == 404


def test_its_state_can_be_watched(url: str) -> None:
    for path in ("health", "ready"):
        assert httpx.get(f"{url}/{path}").json() == {"status": "ok"}
    text_of(url, "say")
    figures = httpx.get(f"{url}/metrics").text
    assert 'headrace_requests_total{endpoint="completions",status="200"}' in figures
    assert "headrace_rows 0\n" in figures
    assert httpx.get(f"{url}/about").json()["facts"]["text"] == "a book"
    assert "<title>" in httpx.get(url).text


def test_when_there_is_no_room_clients_are_told_to_come_again(folder: Path) -> None:
    with served(folder, rows=1, waiting=1) as url, ThreadPoolExecutor(16) as pool:
        asked = {"prompt": "say", "max_tokens": 100}
        replies = list(pool.map(lambda _: post(url, "completions", **asked), range(16)))
        status = {reply.status_code for reply in replies}
        refused = next(reply for reply in replies if reply.status_code == 429)
    assert status == {200, 429} and int(refused.headers["Retry-After"]) >= 1


def test_an_answer_that_nobody_waits_for_is_not_written(folder: Path) -> None:
    with served(folder, rows=1) as url:
        body = {"prompt": "say", "max_tokens": 100, "stream": True}
        for _ in range(5):
            with httpx.stream("POST", f"{url}/v1/completions", json=body, headers=KEY) as reply:
                next(reply.iter_lines())
        assert len(text_of(url, "say")) > 0
        until = time.monotonic() + 20
        while "headrace_rows 0\n" not in (figures := httpx.get(f"{url}/metrics").text):
            assert time.monotonic() < until, figures
            time.sleep(0.05)


def test_an_answer_takes_no_longer_than_allowed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from model.generation import engine

    honest = engine.choose
    monkeypatch.setattr(engine, "choose", lambda *a: (time.sleep(0.1), honest(*a))[1])
    with served(folder, Limits(seconds=0.01)) as url:
        reply = post(url, "completions", prompt="say", max_tokens=100)
    assert reply.status_code == 503


def test_a_step_that_fails_ends_its_answers_and_no_others(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(folder) as url:
        from model.generation import engine

        honest = engine.choose
        monkeypatch.setattr(engine, "choose", lambda *_: 1 / 0)
        assert post(url, "completions", prompt="say").status_code == 503
        monkeypatch.setattr(engine, "choose", honest)
        assert post(url, "completions", prompt="say").status_code == 200


def test_a_prompt_of_several_is_all_or_nothing(folder: Path) -> None:
    async def asked() -> None:
        service = Service(folder, "pub", Capacity(waiting=2), {})
        with pytest.raises(Exception, match="wait already"):
            service.complete(CompletionRequest(prompt=["a", "b", "c"]))
        service.engine.step()
        assert not service.busy

    asyncio.run(asked())


def test_a_request_that_does_not_get_whole_is_refused(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "READ_SECONDS", 0.05)
    head = "POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 99\r\n"
    with socket.create_connection(("127.0.0.1", int(url.rsplit(":", 1)[1])), timeout=60) as asker:
        asker.sendall(f"{head}Authorization: Bearer secret\r\n\r\n{{".encode())
        assert asker.recv(1000).startswith(b"HTTP/1.1 408 ")


def test_clients_that_break_every_rule_harm_nobody(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = importlib.util.spec_from_file_location("serving_faults", FAULTS)
    assert spec is not None and spec.loader is not None
    faults = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, faults)  # which dataclasses look into
    spec.loader.exec_module(faults)
    with served(folder, Limits(body_bytes=65_536), rows=8, waiting=32) as url:
        clients = faults.Attack(int(url.rsplit(":", 1)[1]), 0, lambda: 0, "secret")
        asyncio.run(clients.run(100, burst=60))
        assert 'status="499"' in httpx.get(f"{url}/metrics").text  # those that left half-way
    assert not clients.wrong
    assert all(clients.state.values()), clients.state
    assert all(sum(counts.values()) for counts in clients.told.values())
    assert clients.told["whole"]["429"] and clients.told["whole"]["200"]


def test_only_decoders_are_served(tmp_path: Path) -> None:
    import torch

    from model import hub
    from model.shapes import from_depth
    from model.transformer import Transformer

    torch.manual_seed(0)
    shape = from_depth(1, vocab_size=320, context=32, width=16, heads=2, family="encoder")
    hub.save(published_folder(tmp_path / "m"), Transformer(shape), {"eos_token_id": 2})
    for file in (tmp_path / "m").glob("model*index*"):
        file.unlink()
    with pytest.raises(BadInput, match="only a decoder is served"):
        Service(tmp_path / "m", "m", Capacity(), {})


def test_the_command_serves_until_it_is_stopped(folder: Path, tmp_path: Path) -> None:
    import signal
    import subprocess
    import sys

    command = [sys.executable, "-m", "flows.cli", "serve", str(folder), "--port", "0", "--json"]
    command += ["--precision", "bf16"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        until = time.monotonic() + 60
        while time.monotonic() < until:
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"{url}/ready").status_code == 200:
                    break
            time.sleep(0.1)
        asked = {"model": str(folder), "prompt": "say", "max_tokens": 1, "logprobs": 0}
        reply = httpx.post(f"{url}/v1/completions", json={**asked, "temperature": 0}).json()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 143
    (told,) = reply["choices"][0]["logprobs"]["token_logprobs"]
    rounded, whole = (
        generate_text(folder, "say", GenerationSettings(max_tokens=1, precision=precision))
        for precision in ("bf16", "fp32")
    )
    assert told == pytest.approx(rounded["logprobs"][0], abs=1e-5)
    assert told != pytest.approx(whole["logprobs"][0], abs=1e-5)
