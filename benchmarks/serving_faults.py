"""A served model among clients that break every rule: does it stay well, and answer each rightly?

    uv run python benchmarks/serving_faults.py MODEL [--requests 10000] [--seed 0]

Starts `headrace serve MODEL` in a process of its own on the loopback, asks a few prompts one by
one, and then sends requests of all kinds at once: honest ones, whole and streamed; connections cut
while an answer comes or before the request is whole; bodies that are too large, no JSON or no
UTF-8; readers that are slow, or never read. In the middle 500 come at the same moment. Printed: how
each kind was answered, honest answers that differ from those given alone (which must be none),
whether the server is well and idle at the end, and its memory from a tenth of the requests on.
"""

import argparse
import asyncio
import contextlib
import json
import random
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import psutil

KINDS = {
    "whole": 48, "streamed": 16, "cut": 10, "half sent": 6, "oversize": 4, "no JSON": 5,
    "no UTF-8": 5, "slow reader": 4, "never reads": 2,
}  # fmt: skip
"""Of a hundred requests so many are of this kind."""
ALLOWED = {
    "whole": {"200", "429"}, "streamed": {"200", "429"}, "slow reader": {"200", "429"},
    "oversize": {"413"}, "no JSON": {"400"}, "no UTF-8": {"400"}, "cut": {"left"},
    "half sent": {"left"}, "never reads": {"left"},
}  # fmt: skip
PROMPTS, TOKENS, BODY_BYTES = 40, 24, 65_536
AT_ONCE, BURST, DEAF = 48, 500, 16
SECONDS = 300.0


def main() -> None:
    """Print what became of the server and its clients."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="a model folder or an artifact's name")
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with serving(options.model) as (port, process):
        memory = psutil.Process(process.pid).memory_info
        attack = Attack(port, options.seed, lambda: memory().rss)
        asyncio.run(attack.run(options.requests))
        attack.report()


@contextlib.contextmanager
def serving(model: str) -> Iterator[tuple[int, "subprocess.Popen[str]"]]:
    """The port and process of `headrace serve`."""
    command = [sys.executable, "-m", "flows.cli", "serve", model, "--port", "0", "--json"]
    command += ["--body-bytes", str(BODY_BYTES), "--timeout", str(SECONDS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        yield int(url.rsplit(":", 1)[1]), process
        process.terminate()


@dataclass
class Attack:
    """The clients of a server on this machine, what they were told, and what they found wrong."""

    port: int
    seed: int
    memory: Callable[[], int]
    key: str = ""
    told: dict[str, Counter[str]] = field(default_factory=lambda: {k: Counter() for k in KINDS})
    wrong: list[str] = field(default_factory=list)
    """Honest answers that are not those given alone, and kinds answered in a way not allowed."""
    sizes: list[int] = field(default_factory=list)
    """Bytes of the server's memory at the start and after each tenth of the requests."""
    state: dict[str, bool] = field(default_factory=dict)
    alone: list[str] = field(default_factory=list)
    deaf: list[socket.socket] = field(default_factory=list)

    async def run(self, count: int, burst: int = BURST) -> None:
        """Send so many requests, and `burst` at once in the middle."""
        numbers = random.Random(self.seed)
        while not await self._says("/ready", b" 200 "):
            await asyncio.sleep(0.2)
        for number in range(PROMPTS):
            self.alone.append(_text(await self._ask(_body(number))))
        self.sizes.append(self.memory())
        kinds = numbers.choices(list(KINDS), list(KINDS.values()), k=count)
        for tenth in range(10):
            part = kinds[count * tenth // 10 : count * (tenth + 1) // 10]
            if tenth == 5:
                await self._all(["whole"] * burst, burst, numbers)
            await self._all(part, AT_ONCE, numbers)
            self.sizes.append(self.memory())
        await self._end()

    async def _all(self, kinds: list[str], at_once: int, numbers: random.Random) -> None:
        room = asyncio.Semaphore(at_once)

        async def one(kind: str, number: int) -> None:
            async with room:
                with contextlib.suppress(ConnectionError):
                    self._note(kind, number, await self._send(kind, number))

        await asyncio.gather(*(one(kind, numbers.randrange(PROMPTS)) for kind in kinds))

    def _note(self, kind: str, number: int, reply: bytes | None) -> None:
        status = "left" if reply is None else reply[9:12].decode() or "none"
        self.told[kind][status] += 1
        if status not in ALLOWED[kind]:
            self.wrong.append(f"{kind}: {status}")
        elif status == "200" and reply is not None and _text(reply) != self.alone[number]:
            self.wrong.append(f"{kind}: {_text(reply)!r} for {self.alone[number]!r}")

    async def _send(self, kind: str, number: int) -> bytes | None:
        """The whole reply to a request of this kind; None where the client did not wait for it."""
        if kind == "oversize":
            return await self._ask(b'{"prompt": "' + b"a" * BODY_BYTES + b'"}')
        if kind == "no JSON":
            return await self._ask(_body(number)[:-1])
        if kind == "no UTF-8":
            return await self._ask(b'{"prompt": "\xff\xfe"}')
        if kind == "never reads":
            return await self._never_read(number)
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            sent = self._request(_body(number, stream=kind != "whole"))
            writer.write(sent[: len(sent) - 9] if kind == "half sent" else sent)
            await writer.drain()
            if kind in ("cut", "half sent"):
                await (reader.read(300) if kind == "cut" else asyncio.sleep(0.01))
                return None
            return await _read(reader, 64 if kind == "slow reader" else 1 << 16)
        finally:
            writer.close()

    async def _never_read(self, number: int) -> None:
        """Ask for a stream and leave it, open, to the server; the first of many go at last."""
        if len(self.deaf) >= DEAF:
            self.deaf.pop(0).close()
        asker = socket.socket()
        asker.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        asker.setblocking(False)
        self.deaf.append(asker)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(asker, ("127.0.0.1", self.port))
        await loop.sock_sendall(asker, self._request(_body(number, stream=True, logprobs=20)))

    async def _ask(self, body: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(self._request(body))
            return await _read(reader, 1 << 16)
        finally:
            writer.close()

    def _request(self, body: bytes) -> bytes:
        head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        head += f"Authorization: Bearer {self.key}\r\nContent-Length: {len(body)}\r\n\r\n"
        return head.encode() + body

    async def _says(self, path: str, wanted: bytes) -> bool:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            writer.write(f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
            reply = await _read(reader, 1 << 16)
            writer.close()
            return wanted in reply
        return False

    async def _end(self) -> None:
        """Let those go that never read, and see what state the server is in."""
        for asker in self.deaf:
            asker.close()
        for _ in range(100):
            if await self._says("/metrics", b"headrace_rows 0\n"):
                break
            await asyncio.sleep(0.1)
        self.state = {
            "healthy": await self._says("/health", b" 200 "),
            "ready": await self._says("/ready", b" 200 "),
            "no rows left": await self._says("/metrics", b"headrace_rows 0\n"),
            "none waiting": await self._says("/metrics", b"headrace_waiting 0\n"),
        }
        again = [_text(await self._ask(_body(number))) for number in range(PROMPTS)]
        self.state["answers as at first"] = again == self.alone

    def report(self) -> None:
        """Print what was told and found."""
        for kind, counts in self.told.items():
            told = ", ".join(f"{count} {status}" for status, count in counts.most_common())
            print(f"{kind:12} {told}")
        print(f"different texts among {PROMPTS} prompts: {len(set(self.alone))}")
        print(f"wrong: {len(self.wrong)}", *self.wrong[:5], sep="\n  ")
        print(
            ", ".join(f"{name}: {'yes' if holds else 'NO'}" for name, holds in self.state.items())
        )
        mb = [f"{size / 1e6:.0f}" for size in self.sizes]
        print("MB of memory at the start and after each tenth:", *mb)


def _body(number: int, **more: object) -> bytes:
    """A request for the answer to a prompt, drawn likeliest first."""
    prompt = f"say {number} {'mill ' * (number % 7)}"
    asked = {"prompt": prompt, "temperature": 0, "max_tokens": TOKENS, **more}
    return json.dumps(asked).encode()


async def _read(reader: asyncio.StreamReader, size: int) -> bytes:
    """All of a reply; a small `size` takes its time."""
    reply = b""
    while part := await reader.read(size):
        reply += part
        if size < 1024:
            await asyncio.sleep(0.005)
    return reply


def _text(reply: bytes) -> str:
    """What an answer says, whole or in events."""
    head, _, rest = reply.partition(b"\r\n\r\n")
    if b"text/event-stream" not in head:
        return str(json.loads(rest)["choices"][0]["text"])
    lines = [line[6:] for line in rest.splitlines() if line.startswith(b"data: {")]
    return "".join(json.loads(line)["choices"][0]["text"] for line in lines)


if __name__ == "__main__":
    main()
