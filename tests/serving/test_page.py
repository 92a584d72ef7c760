"""The chat page in a real browser: a message typed, an answer seen as it comes."""

import asyncio
import contextlib
import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from model.generation.engine import Capacity
from tests.published import published_folder
from tests.serving.test_service import served

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")


@contextlib.asynccontextmanager
async def page(url: str, folder: Path, width: int) -> AsyncIterator[Any]:
    """A function that evaluates JavaScript in a page, by the browser's own protocol."""
    import aiohttp

    options = ["--headless=new", "--no-sandbox", "--remote-debugging-port=0", "about:blank"]
    command = [str(BROWSER), f"--user-data-dir={folder}", f"--window-size={width},800", *options]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as browser:
        try:
            target = _socket(folder / "DevToolsActivePort")
            async with aiohttp.ClientSession() as session, session.ws_connect(target) as socket:

                async def ask(method: str, **params: Any) -> Any:
                    await socket.send_json({"id": 1, "method": method, "params": params})
                    while "id" not in (reply := await socket.receive_json()):
                        pass
                    return reply.get("result", {})

                async def evaluate(script: str) -> Any:
                    found = await ask("Runtime.evaluate", expression=script)
                    return found["result"].get("value")

                await ask("Page.navigate", url=url)
                yield evaluate
        finally:
            browser.kill()


def _socket(file: Path) -> str:
    """Where the browser's first page listens, once it does."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        with contextlib.suppress(OSError, IndexError, StopIteration):
            port = int(file.read_text().split()[0])
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/json") as reply:
                tabs = json.load(reply)
            return str(next(t["webSocketDebuggerUrl"] for t in tabs if t["type"] == "page"))
        time.sleep(0.1)
    raise TimeoutError("the browser does not answer")


async def until(evaluate: Any, script: str) -> Any:
    """The first value of a script that is not false."""
    for _ in range(300):
        if found := await evaluate(script):
            return found
        await asyncio.sleep(0.1)
    raise TimeoutError(script)


@pytest.mark.parametrize("width", [390, pytest.param(1100, marks=pytest.mark.slow)])
def test_a_message_is_typed_and_an_answer_seen(tmp_path: Path, width: int) -> None:
    published_folder(tmp_path / "model")

    async def talk(url: str) -> None:
        async with page(url, tmp_path / "browser", width) as evaluate:
            assert await until(evaluate, "typeof model === 'string' && model") == "pub"
            await evaluate("$('said').value = 'say one'; $('key').value = 'secret'")
            await evaluate("$('max_tokens').value = 9; $('seed').value = 2")
            await evaluate("$('form').requestSubmit()")
            tips = "document.querySelectorAll('.token')[0]?.dataset.tip"
            assert "%" in await until(evaluate, tips)
            await until(evaluate, "$('send').textContent === 'Send'")
            turns = await evaluate("document.querySelectorAll('.turn').length")
            wide = await evaluate("document.documentElement.scrollWidth <= innerWidth")
            assert (turns, wide) == (2, True)
            assert "a book" in await evaluate("$('about').textContent")

    with served(tmp_path / "model", **vars(Capacity(rows=2))) as url:
        asyncio.run(talk(url))
