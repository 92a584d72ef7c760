"""The HTTP interface: OpenAI's paths over a `Service`, health and metrics, and the chat page.

An ASGI application, run by uvicorn (`headrace serve`) or inside a Ray Serve deployment. An error is
a JSON object `{"error": {"message": ..., "type": ..., "code": ...}}`.
"""

import asyncio
import hmac
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    Response,
)
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from cluster.errors import BadInput
from model.generation.engine import Full
from tasks.serving.forms import Chats, Completions, Form, Refused
from tasks.serving.metrics import exposition
from tasks.serving.protocol import (
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    EmbeddingRequest,
    TokenizeRequest,
)
from tasks.serving.service import Service

PAGE = Path(__file__).with_name("page.html")
KINDS = {400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error"}
KINDS |= {413: "invalid_request_error", 429: "rate_limit_error"}
RETRY_AFTER_SECONDS = 1
READ_SECONDS = 60.0
"""In which a request has to be whole."""
LEFT = 499
"""Counted where the client closed the connection before (a status of nginx's)."""
Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True)
class Limits:
    """What one request may take: bytes of its body, and seconds for its answer."""

    body_bytes: int = 4 << 20
    seconds: float = 600.0


def application(service: Service, limits: Limits, key: str | None) -> Starlette:
    """The application of a service; with a `key`, clients have to send it as a bearer token."""
    api = Api(service, limits, key)
    routes = [
        Route("/", api.page),
        Route("/about", api.about),
        Route("/health", api.health),
        Route("/ready", api.ready),
        Route("/metrics", api.metrics),
        Route("/v1/models", api.guarded("models", api.models)),
        Route("/v1/completions", api.guarded("completions", api.completions), methods=["POST"]),
        Route("/v1/embeddings", api.guarded("embeddings", api.embeddings), methods=["POST"]),
        Route("/v1/chat/completions", api.guarded("chat", api.chat), methods=["POST"]),
        Route("/tokenizer_info", api.guarded("tokenizer", api.tokenizer)),
        Route("/tokenize", api.guarded("tokenize", api.tokenize), methods=["POST"]),
        Route("/detokenize", api.guarded("detokenize", api.detokenize), methods=["POST"]),
    ]
    return Starlette(routes=routes, exception_handlers={404: _not_found, 405: _not_found})


class Api:
    """What answers each path of one service."""

    def __init__(self, service: Service, limits: Limits, key: str | None) -> None:
        self.service, self.limits, self.key = service, limits, key

    async def page(self, request: Request) -> Response:
        """A chat with the model."""
        return HTMLResponse(PAGE.read_text(encoding="utf-8"))

    async def about(self, request: Request) -> Response:
        """What the page tells of the model."""
        return JSONResponse(self.service.described())

    async def health(self, request: Request) -> Response:
        """200 while the engine runs."""
        return _status(self.service.healthy)

    async def ready(self, request: Request) -> Response:
        """200 while requests are taken."""
        return _status(self.service.healthy and not self.service.closed)

    async def metrics(self, request: Request) -> Response:
        """Figures for Prometheus."""
        return PlainTextResponse(exposition(self.service), media_type="text/plain; version=0.0.4")

    async def models(self, request: Request) -> Response:
        """The one model."""
        return JSONResponse({"object": "list", "data": [self.service.about()]})

    def guarded(self, name: str, handler: Handler) -> Handler:
        """A path behind the key, whose errors are told in OpenAI's form, and which is counted."""

        async def answered(request: Request) -> Response:
            try:
                self._check_key(request)
                response = await handler(request)
            except Refused as refused:
                response = failure(refused.status, str(refused))
            except Full as full:
                after = {"Retry-After": str(RETRY_AFTER_SECONDS)}
                response = failure(429, f"{full}; come again", after)
            except (BadInput, ValueError) as error:
                response = failure(400, str(error))
            except ClientDisconnect:
                response = failure(LEFT, "the client went before its request was whole")
            self.service.count(name, response.status_code)
            return response

        return answered

    async def completions(self, request: Request) -> Response:
        """Text that follows a prompt."""
        asked = await self._read(request, CompletionRequest)
        return await self._reply(request, asked, Completions(self.service, asked))

    async def chat(self, request: Request) -> Response:
        """The next turn of a conversation."""
        asked = await self._read(request, ChatRequest)
        return await self._reply(request, asked, Chats(self.service, asked))

    async def embeddings(self, request: Request) -> Response:
        """Texts as vectors."""
        asked = await self._read(request, EmbeddingRequest)
        return JSONResponse(await asyncio.to_thread(self.service.embed, asked))

    async def tokenizer(self, request: Request) -> Response:
        """What the tokenizer's marks are, and its chat template."""
        return JSONResponse(self.service.marks())

    async def tokenize(self, request: Request) -> Response:
        """The tokens of a text."""
        asked = await self._read(request, TokenizeRequest)
        return JSONResponse(self.service.tokenize(asked))

    async def detokenize(self, request: Request) -> Response:
        """The text of some tokens."""
        asked = await self._read(request, DetokenizeRequest)
        return JSONResponse({"prompt": self.service.detokenize(asked)})

    def _check_key(self, request: Request) -> None:
        if self.key is None:
            return
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if not hmac.compare_digest(given.encode(), self.key.encode()):
            raise Refused(401, "this server wants its key: Authorization: Bearer KEY")

    async def _read(self, request: Request, kind: type[Any]) -> Any:
        """The body as a request of a kind."""
        try:
            async with asyncio.timeout(READ_SECONDS):
                body = await self._body(request)
        except TimeoutError as error:
            raise Refused(408, f"no whole request in {READ_SECONDS:g} s") from error
        try:
            asked: BaseModel = kind.model_validate(json.loads(body, parse_constant=_no_number))
        except ValidationError as error:
            raise Refused(400, _faults(error)) from error
        except (ValueError, RecursionError) as error:
            raise Refused(400, f"the body is not JSON: {error}") from error
        named = getattr(asked, "model", None)
        if named not in (None, self.service.name):
            raise Refused(404, f"no model '{named}'; this server has '{self.service.name}'")
        if self.service.closed:
            raise Refused(503, "the server is about to stop")
        return asked

    async def _body(self, request: Request) -> bytes:
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > self.limits.body_bytes:
                raise Refused(413, f"the body is larger than {self.limits.body_bytes} bytes")
        return bytes(body)

    async def _reply(self, request: Request, asked: Any, form: Form) -> Response:
        """The answers as a stream, or whole; they end where the client has gone or waited long."""
        if asked.stream:
            return EventStream(self.service, form, self.limits.seconds)
        gone = asyncio.ensure_future(_left(request))
        whole = asyncio.ensure_future(form.whole())
        try:
            await asyncio.wait(
                {gone, whole}, timeout=self.limits.seconds, return_when=asyncio.FIRST_COMPLETED
            )
            if whole.done():
                return JSONResponse(whole.result())
            raise Refused(503, f"no whole answer in {self.limits.seconds:g} s, or nobody waits")
        finally:
            gone.cancel()
            whole.cancel()
            self.service.cancel(form.answers)


def failure(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    """An error in OpenAI's form."""
    about = {"message": message, "type": KINDS.get(status, "server_error"), "code": status}
    return JSONResponse({"error": {**about, "param": None}}, status, headers)


class EventStream(Response):
    """Server-sent events, while somebody reads them and `seconds` long at most."""

    def __init__(self, service: Service, form: Form, seconds: float) -> None:
        super().__init__(media_type="text/event-stream", headers={"Cache-Control": "no-cache"})
        del self.headers["content-length"]
        self.service, self.form, self.seconds = service, form, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Write until the end; what nobody reads any more is not written."""
        written = asyncio.ensure_future(self._write(send))
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            await asyncio.wait(
                {written, gone}, timeout=self.seconds, return_when=asyncio.FIRST_COMPLETED
            )
            if written.done():
                written.result()
        finally:
            written.cancel()
            gone.cancel()
            self.service.cancel(self.form.answers)

    async def _write(self, send: Send) -> None:
        status = {"status": 200, "headers": self.raw_headers}
        await send({"type": "http.response.start", **status})
        async for event in self.form.events():
            line = f"data: {json.dumps(event)}\n\n".encode()
            await send({"type": "http.response.body", "body": line, "more_body": True})
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _left(request: Request) -> None:
    """Wait until the client has gone."""
    while not await request.is_disconnected():
        await asyncio.sleep(0.2)


def _status(good: bool) -> Response:
    return JSONResponse({"status": "ok" if good else "unavailable"}, 200 if good else 503)


async def _not_found(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    return failure(status, f"{request.method} {request.url.path}: there is no such thing here")


def _faults(error: ValidationError) -> str:
    parts = []
    for fault in error.errors()[:5]:
        place = ".".join(str(part) for part in fault["loc"])
        parts.append(f"{place}: {fault['msg']}" if place else fault["msg"])
    return "; ".join(parts)


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no number in JSON")
