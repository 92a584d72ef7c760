"""A wire between two processes, the tests and the answer: calls go over it, and plain values.

    wire = Wire(into, out, {"run": run})
    wire.ask("run", code)                      # what the other side's `run(code)` returns or raises

Plain values cross as copies; what a call changed in a list that it was given is changed in the
caller's. Everything else crosses as a name for it: a `Proxy`, of which the other side is asked. So
neither process holds what is the other's, nor sees what it compares. Needs the standard library
only.
"""

import builtins
import importlib
import operator
import sys
import types
from collections.abc import Callable
from typing import Any, BinaryIO

from tasks.evaluation.exams.box.values import CHANGED, ITSELF, read, update, written

Service = Callable[..., Any]
ASKED: dict[str, Service] = {
    **{name: getattr(builtins, name) for name in ("iter", "next", "len", "str", "repr", "bool")},
    **{name: getattr(operator, name) for name in ("getitem", "contains")},
}
"""What either side may do with an object of the other's, besides calling it."""
AMONG_ITS_OWN: dict[str, Service] = {
    name: getattr(operator, name)
    for name in ("eq", "lt", "le", "gt", "ge", "add", "sub", "mul", "truediv")
}
"""What the tests may do with two objects that the answer made. None of them equals a plain value,
nor is there arithmetic with one: it could be of any value.
"""
OF_ANSWERS = {"setitem": operator.setitem, "delitem": operator.delitem, **ASKED, **AMONG_ITS_OWN}
"""All that the tests may do with them."""


class Ended(BaseException):
    """The other process has ended."""


class Proxy:
    """Stands for an object of the other process, which is asked for all that is done with it."""

    def __init__(self, wire: "Wire", number: int):
        self.__dict__.update(_wire=wire, _number=number)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Call it; what it changes in a list is changed here."""
        result, changed = self._wire.ask("call", self._number, arguments, options)
        for place, value in changed.items():
            update(arguments[place], value)
        return result

    def __getattr__(self, name: str) -> Any:
        return self._wire.ask("get", self._number, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._wire.ask("set", self._number, name, value)

    def __hash__(self) -> int:
        return hash(self._number)


def _asking(name: str) -> Service:
    def asked(self: Any, *others: Any) -> Any:
        if name in AMONG_ITS_OWN and not isinstance(others[0], Proxy):
            return NotImplemented
        return self._wire.ask("do", name, self._number, *others)

    return asked


for _name in OF_ANSWERS:
    setattr(Proxy, f"__{_name}__", _asking(_name))


class Wire:
    """One end: `services` has what the other end may ask for, by name, besides calling what it was
    given and doing some of `operators` with it.
    """

    def __init__(
        self,
        into: BinaryIO,
        out: BinaryIO,
        services: dict[str, Service],
        operators: dict[str, Service] = ASKED,
    ):
        self._into, self._out, self._operators = into, out, operators
        self._services = {"call": self._call, "do": self._do, **services}
        self.own: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._errors: dict[int, type] = {}

    def ask(self, what: str, *arguments: Any) -> Any:
        """What the other end answers, which may ask something first; or raise what it raised."""
        self._send(["ask", what, *arguments])
        while True:
            kind, *rest = self._receive()
            if kind == "answer":
                return rest[0]
            if kind == "error":
                raise rest[0](*rest[1:])
            self._answer(*rest)

    def serve(self) -> None:
        """Answer until the other end closes."""
        while True:
            self._answer(*self._receive()[1:])

    def _answer(self, what: str, *arguments: Any) -> None:
        try:
            reply = written(["answer", self._services[what](*arguments)], self._name)
        except Ended:
            raise
        except BaseException as error:
            said = [one if type(one) in ITSELF else str(one) for one in error.args]
            reply = written(["error", type(error), *said], self._name)
        self._write(reply)

    def _call(self, number: int, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Call an object of this end; the result, and the arguments that it changed."""
        given = {n: one for n, one in enumerate(arguments) if isinstance(one, CHANGED)}
        before = {n: written(one, self._name) for n, one in given.items()}
        result = self.own[number](*arguments, **options)
        return result, {n: one for n, one in given.items() if written(one, self._name) != before[n]}

    def _do(self, name: str, number: int, *others: Any) -> Any:
        return self._operators[name](self.own[number], *others)

    def _send(self, message: list[Any]) -> None:
        self._write(written(message, self._name))

    def _write(self, line: str) -> None:
        try:
            self._out.write(line.encode() + b"\n")
            self._out.flush()
        except OSError as error:
            raise Ended from error

    def _receive(self) -> Any:
        if not (line := self._into.readline()).endswith(b"\n"):
            raise Ended
        return read(line, self._named)

    def _name(self, value: Any) -> list[Any]:
        """What stands for an object on the wire."""
        if isinstance(value, Proxy):
            return ["yours", value._number]
        if isinstance(value, types.ModuleType):
            return ["module", value.__name__]
        number = self._numbers.setdefault(id(value), len(self.own))
        if number == len(self.own):
            self.own.append(value)
        if isinstance(value, type) and issubclass(value, BaseException):
            bases = [self._error(one) for one in value.__bases__ if issubclass(one, BaseException)]
            return ["error", number, value.__name__, *bases]
        return ["mine", number]

    def _error(self, kind: type) -> list[Any]:
        known = getattr(builtins, kind.__name__, None) is kind
        return ["class", kind.__name__] if known else self._name(kind)

    def _named(self, found: list[Any]) -> Any:
        """The object here that a name from the other end stands for."""
        kind, *rest = found
        if kind == "yours":
            return self.own[rest[0]]
        if kind == "module":
            known = rest[0].split(".")[0] in sys.stdlib_module_names
            return importlib.import_module(rest[0]) if known else None
        if kind == "mine":
            return Proxy(self, rest[0])
        return self._errors.setdefault(rest[0], _class(self, *rest[1:]))


def _class(wire: Wire, title: str, *bases: list[Any]) -> type:
    """An error's class of the other end, under the same of Python's: to be raised and caught."""
    above = [getattr(builtins, one[1]) if one[0] == "class" else wire._named(one) for one in bases]
    return type(title, tuple(above), {})
