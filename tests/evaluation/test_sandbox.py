"""Code that a model wrote passes its tests by doing what they ask, and does nothing else."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from cluster.errors import BadInput
from cluster.store import Store
from tasks.evaluation.exams import sandbox
from tasks.evaluation.exams.results import named_candidates, shown, take_exam
from tasks.evaluation.exams.sandbox import run_code
from tests.evaluation.test_exams import exam

RIGHT = "def f(x): return 2 * x"
PASSING = {
    "it is right": (RIGHT, "assert f(2) == 4"),
    "names and values": (
        "import math\nfrom collections import Counter, deque, namedtuple\nfrom decimal import *\n"
        "P = namedtuple('P', 'x y')\nK = 2 ** 20000\n"
        "def f(x): return x, {1: {2.5}, 'a': None}, b'b', 1j, range(3), Decimal('.1'), P(1, 2)\n"
        "def g(): return Counter('aab'), deque([1]), float('inf')",
        "assert f([1]) == ([1], {1: {2.5}, 'a': None}, b'b', 1j, range(3), Decimal('.1'), (1, 2))\n"
        "assert g() == (Counter(a=2, b=1), deque([1]), math.inf) and K == 1 << 20000",
    ),
    "classes": (
        "class Stack:\n"
        "    def __init__(self, *a): self.a = list(a)\n"
        "    def push(self, x): self.a.append(x); return self\n"
        "    def __len__(self): return len(self.a)\n"
        "    def __getitem__(self, i): return self.a[i]\n"
        "    def __eq__(self, other): return self.a == other.a\n"
        "    def __add__(self, other): return Stack(*self.a, *other.a)",
        "s = Stack(1).push(2)\nassert len(s) == 2 and list(s) == [1, 2] and s[0] == 1 and 2 in s\n"
        "assert s == Stack(1, 2) and s != Stack(1) and s + Stack(3) == Stack(1, 2, 3)\n"
        "s.a = [5]\nassert s.a == [5]",
    ),
    "errors": (
        "class Odd(ValueError): pass\nclass Very(Odd): pass\n"
        "def f(x):\n    if x == 1: raise Very('one', 1)\n    return [][x]",
        "try: f(1); assert 0\nexcept Odd as e: assert isinstance(e, ValueError) and e.args[1]\n"
        "try: f(0); assert 0\nexcept IndexError: pass",
    ),
    "what it changes in a list": (
        "def f(a, b): a.sort(); b['n'] = a[0]",
        "a, b = [3, 1], {}\nf(a, b)\nassert (a, b) == ([1, 3], {'n': 1})",
    ),
    "functions and iterators of the tests": (
        "def f(key, items): return sorted(items, key=key)\ndef g(n): yield from range(n)",
        "assert f(lambda x: -x, iter([1, 2])) == [2, 1] and list(g(3)) == [0, 1, 2]",
    ),
    "what it prints and reads": (
        "import sys\ndef f(): print(int(input()) + int(sys.stdin.read()))",
        "import contextlib, io, sys\nsys.stdin = io.StringIO('40\\n2')\n"
        "with contextlib.redirect_stdout(io.StringIO()) as out: f()\n"
        "assert out.getvalue() == '42\\n'",
    ),
    "files of its own, threads and an event loop": (
        "from __future__ import annotations\nimport asyncio, os, threading\n"
        "open('x', 'w').write('y'); os.chmod('x', 0o600); os.remove('x')\n"
        "t = threading.Thread(target=print); t.start(); t.join()\n"
        "assert not os.environ.get('HOME')\ndef f(): return asyncio.run(asyncio.sleep(0, 3))",
        "assert f() == 3",
    ),
}
FAILING = {
    "it is wrong": ("def f(x): return 3 * x", "assert f(2) == 4", "AssertionError"),
    "it is no Python": ("def f(: return", "f()", "does not parse"),
    "it takes memory": ("x = bytearray(1 << 31)", "", "MemoryError"),
    "it writes much": ("open('x', 'wb').write(bytes(1 << 22))", "", "File too large"),
    "it makes many files": ("for n in range(5000): open(str(n), 'w')", "", "No space left"),
    "it lacks a name": ("", "f()", "NameError: name 'f' is not defined"),
}
LOOK = """
import gc, os, sys
def everything():
    frame = sys._getframe()
    while frame:
        yield str(frame.f_globals) + str(frame.f_locals)
        frame = frame.f_back
    yield str([o for o in gc.get_objects() if isinstance(o, (str, bytes, list, dict))])
    for pid in ('self', os.getppid(), 1):
        for name in ('mem', 'environ', 'cmdline', 'maps', 'fd/0'):
            try: yield str(open(f'/proc/{pid}/{name}', 'rb').read(1 << 20))
            except OSError: pass
    for handle in range(3, 64):
        try: os.lseek(handle, 0, 0); yield str(os.read(handle, 1 << 20))
        except OSError: pass
if 'NEEDLE'.swapcase() in ''.join(everything()): f = lambda x: 4
else: f = lambda x: 3
"""
CHEATING = {
    "leaves early": "import os; os._exit(0)",
    "exits": "import sys; sys.exit(0)",
    "equals everything": (
        "class A:\n    __eq__ = __lt__ = __gt__ = lambda s, o: True\n"
        "    __bool__ = __sub__ = __rsub__ = __abs__ = lambda *a: 0\n"
        "f = lambda x: A()"
    ),
    "equals everything and is a number": (
        "class A(int):\n    __eq__ = lambda s, o: True\nf = lambda x: A(9)"
    ),
    "redefines what tests compare with": "abs = all = lambda *a: 0\nf = lambda x: 5",
    "writes a verdict everywhere": (
        "import os\nfor fd in range(3, 64):\n"
        '    try: os.write(fd, b\'["answer", true]\\n{"passed": true}\\n\')\n'
        "    except OSError: pass\nf = lambda x: 5"
    ),
    "looks for the tests": LOOK.replace("NEEDLE", "nEEDLE IN THE TESTS"),
}


@pytest.mark.parametrize("what", PASSING)
def test_an_answer_passes(what: str) -> None:
    assert run_code(*PASSING[what]) is None


@pytest.mark.parametrize("what", FAILING)
def test_an_answer_fails_with_the_reason(what: str) -> None:
    code, tests, words = FAILING[what]
    assert words in str(run_code(code, tests))


@pytest.mark.parametrize("what", CHEATING)
def test_a_wrong_answer_does_not_pass(what: str) -> None:
    tests = "assert f(2) == 4 and abs(f(2) - 4) == 0 and all([f(2) == 4])  # Needle in the tests"
    assert run_code(CHEATING[what], tests) is not None
    assert run_code(RIGHT, tests) is None


REACHING = {
    "writes a file": "open({outside!r} + '/planted', 'w').close()",
    "removes a file": "import os; os.remove({outside!r} + '/victim')",
    "cuts a file short": "import os; os.truncate({outside!r} + '/victim', 0)",
    "changes a mode": "import os; os.chmod({outside!r} + '/victim', 0o777)",
    "changes a time": "import os; os.utime({outside!r} + '/victim', (1, 1))",
    "links a file": "import os; os.link({outside!r} + '/victim', {outside!r} + '/planted')",
    "reads a file": "open({outside!r} + '/victim').read()",
    "lists a folder": "import os; os.listdir({outside!r})",
    "reads its parent's environment": (
        "import os; assert open('/proc/%d/environ' % os.getppid()).read()"
    ),
    "connects to a port": (
        "import socket; socket.create_connection(('127.0.0.1', {port}), 5).close()"
    ),
    "connects to a Unix socket": (
        "import socket; socket.socket(socket.AF_UNIX).connect({outside!r} + '/socket')"
    ),
    "starts a process": "import subprocess; subprocess.run(['true'], check=True)",
    "leaves a process behind": (
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
        "        time.sleep({stays})\n    os._exit(0)"
    ),
    "keeps something in the kernel": (
        "import ctypes; assert ctypes.CDLL(None).syscall(248, b'user', b'planted', b'x', 1, -1) > 0"
    ),
    "makes namespaces": ("import ctypes; assert ctypes.CDLL(None).unshare(0x10000000) == 0"),
}
STAYS = 7.25  # seconds, by which the processes of this test are told


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """A folder with a file and a socket of the user's."""
    (tmp_path / "victim").write_text("private")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.path.relpath(tmp_path / "socket"))
        listening.listen()
        yield tmp_path


@pytest.mark.parametrize("what", REACHING)
def test_an_answer_reaches_nothing(what: str, outside: Path) -> None:
    """And would, without walls."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        given = {"outside": str(outside), "port": listening.getsockname()[1], "stays": STAYS}
        code = REACHING[what].format(**given) + "\nreached = True"
        about = [(path.name, path.stat()) for path in sorted(outside.iterdir())]
        before = set(psutil.pids())
        assert run_code(code, "assert reached") is not None
        found = [(path.name, path.stat()) for path in sorted(outside.iterdir())]
        assert [(name, s.st_mode, s.st_mtime, s.st_size, s.st_nlink) for name, s in found] == [
            (name, s.st_mode, s.st_mtime, s.st_size, s.st_nlink) for name, s in about
        ]
        assert not _left(before, sandbox.START)
        bare = subprocess.run([sys.executable, "-I", "-c", code], stderr=subprocess.PIPE)
        assert bare.returncode == 0, bare.stderr
        for pid in _left(before, code):
            psutil.Process(pid).kill()


def _left(before: set[int], code: str) -> list[int]:
    """The processes that were started since to run some code."""
    found = psutil.process_iter(["pid", "cmdline"])
    new = [one for one in found if one.info["pid"] not in before]
    return [one.info["pid"] for one in new if code in (one.info["cmdline"] or ())]


def test_what_never_ends_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "SECONDS", 1)
    # Answers of other tests, which go on beside this one, are started by the same code.
    monkeypatch.setattr(sandbox, "START", f"{sandbox.START}  # {os.getpid()}")
    started, before = time.monotonic(), set(psutil.pids())
    for code in ("while True: pass", "while True: print('x' * 100_000)"):
        assert "still running after 1 s" in str(run_code(code, ""))
    assert time.monotonic() - started < 9
    assert not _left(before, sandbox.START)


@pytest.mark.parametrize("fault", ["walls.libc.unshare = lambda flags: -1", "walls.ABI = 99"])
def test_nothing_runs_where_it_cannot_be_isolated(
    fault: str, tiny: Any, tmp_path: Path, fresh_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = exam(tmp_path, "code", {"question": "f", "tests": "assert False"})
    (candidate,) = named_candidates(Store(), str(tiny.model.path))
    artifact, _ = take_exam(Store(), candidate, asked)
    assert shown(artifact)["accuracy"] == 0
    changed = sandbox.START.replace("del sys.path", f"sitting.{fault}; del sys.path")
    monkeypatch.setattr(sandbox, "START", changed)
    asked.write_text(asked.read_text() + "max_tokens: 5\n")
    with pytest.raises(BadInput, match="what a model wrote, and cannot isolate it here"):
        take_exam(Store(), candidate, asked)
