"""Where an endpoint is, which key is meant for it, and which addresses a judge must not have."""

import asyncio
import ipaddress
import os
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from cluster.addresses import check_host
from cluster.errors import BadInput
from cluster.url_secrets import hidden

JUDGE_KEY, MODEL_KEY = "HEADRACE_JUDGE_API_KEY", "HEADRACE_MODEL_API_KEY"
OPENAI_KEY, OPENAI_URL = "OPENAI_API_KEY", "https://api.openai.com/v1"
SECRET = "HEADRACE_JUDGE_SECRET"  # noqa: S105 (a variable's name)


@dataclass(frozen=True)
class Endpoint:
    """Where the judge is, how to ask it, and how much it may cost.

    `samples`: replies per question where it gives no log-probabilities. `deadline`: seconds for one
    request, retries included; `patience`: most seconds to wait on a `Retry-After` before trying
    again. `repeats`: how often a reply without an answer is asked for anew. `max_tokens`: of every
    reply, thoughts included; by default what each question needs. `prices`: USD per million tokens
    in and out and, if given, of cached tokens in. `budget`: USD; `most_requests`, `most_tokens` (in
    and out): of a work in all its invocations. `key`: the variable with its key.
    """

    url: str
    model: str
    samples: int = 1
    concurrency: int = 16
    deadline: float = 120.0
    attempts: int = 8
    backoff: float = 0.5
    patience: float = 10.0
    repeats: int = 5
    max_bytes: int = 1 << 20
    prices: tuple[float, ...] | None = None
    budget: float | None = None
    most_requests: int | None = None
    most_tokens: int | None = None
    max_tokens: int | None = None
    key: str = JUDGE_KEY

    @property
    def chat_url(self) -> str:
        """The address requests go to."""
        return f"{self._base}/chat/completions"

    @property
    def completions_url(self) -> str:
        """The address of those that are no chat."""
        return f"{self._base}/completions"

    @property
    def models_url(self) -> str:
        """The address that says which models there are."""
        return f"{self._base}/models"

    @property
    def _base(self) -> str:
        base = self.url.rstrip("/").removesuffix("/chat/completions")
        return base if urlsplit(base).path else f"{base}/v1"


def api_key(endpoint: Endpoint) -> str | None:
    """The key that was given for an endpoint, so that no other host is sent it: the variable named
    for its role; OpenAI's for OpenAI's host, or the one `OPENAI_BASE_URL` names; for a judge the
    Prefect Secret block that `HEADRACE_JUDGE_SECRET` names, on the Prefect server that runs use.
    Raises BadInput when that block cannot be read, or when anybody can.
    """
    openai = urlsplit(os.environ.get("OPENAI_BASE_URL") or OPENAI_URL)
    names = (
        endpoint.key,
        *([OPENAI_KEY] if urlsplit(endpoint.url).netloc == openai.netloc else []),
    )
    if found := next((os.environ[name] for name in names if os.environ.get(name)), None):
        return found
    block = os.environ.get(SECRET) if endpoint.key == JUDGE_KEY else None
    if not block:
        return None
    if "PREFECT_API_URL" not in os.environ:
        from cluster import services

        services.up()
    from prefect.blocks.system import Secret

    _check_closed(os.environ["PREFECT_API_URL"])

    async def load() -> str:
        secret: Any = await Secret.aload(block)
        return str(secret.get())

    try:
        return asyncio.run(load())
    except ValueError as error:
        raise BadInput(f"{SECRET}={block}: Prefect has no such Secret block ({error})") from error


def _check_closed(server: str) -> None:
    """Raise BadInput for a Prefect server that shows its secrets to whoever asks."""
    import httpx

    try:
        told = httpx.post(f"{server}/block_documents/filter", json={"limit": 1}, trust_env=False)
    except httpx.HTTPError:  # Prefect's own client tells why it does not answer
        return
    if told.is_success:
        raise BadInput(
            f"{SECRET}: the Prefect server at {server} gives its Secret blocks to anybody who asks;"
            f" let it ask for a password (PREFECT_SERVER_API_AUTH_STRING), or set {JUDGE_KEY}"
        )


def check_url(endpoint: Endpoint, with_key: bool) -> None:
    """Raise BadInput for an address a judge must not have."""
    url = hidden(endpoint.url)
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadInput(f"judge URL '{url}': write http(s)://host[:port]/v1")
    if parts.username or parts.password:
        raise BadInput(f"the judge URL holds credentials; put the key in {endpoint.key} instead")
    if parts.query or parts.fragment:
        raise BadInput(f"judge URL '{url}': write it without what begins at the ? or #")
    check_host(url)
    if with_key and parts.scheme == "http" and not is_loopback(url):
        raise BadInput(
            f"judge URL '{url}' would carry the API key unencrypted; use https, or unset "
            f"{endpoint.key} and {OPENAI_KEY}"
        )


def is_loopback(url: str) -> bool:
    """Whether the address is on this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:  # another name, not a number
        return False


def proxy_of(url: str) -> str | None:
    """The proxy that the environment names for this address, if any; never one for loopback.

    aiohttp could look itself, but would then also send what `.netrc` holds, in the key's place.
    """
    parts = urlsplit(url)
    if is_loopback(url) or proxy_bypass(parts.hostname or ""):
        return None
    return getproxies().get(parts.scheme)
