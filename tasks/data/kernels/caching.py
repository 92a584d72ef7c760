"""Machine code of kernels, kept under a name that is a hash of all the source it was made from.

Numba keys what it keeps by a kernel's own file: a comment in it compiles all of its kernels anew,
and a change in a kernel that another file calls is not noticed. Here the key is the bytecode of a
kernel, of those it calls and the constants they name: neither comments nor the folder of a clone
count. Versions of a kernel lie side by side and never in one file, as two processes that compile
different ones at a time would else load each other's.
"""

import hashlib
from collections.abc import Callable, Iterator
from functools import cached_property
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np
from numba.core.caching import CompileResultCacheImpl, FunctionCache, NullCache, _CacheLocator

from cluster.home import cache_folder


class KernelCache(NullCache):
    """The cache of one kernel, opened when it is first called: when it is decorated, the kernels
    it calls may not be there yet.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    @cached_property
    def _opened(self) -> FunctionCache:
        return _Cache(self._function)

    @property
    def cache_path(self) -> str:
        """The folder."""
        return str(cache_folder("kernels"))

    def load_overload(self, signature: Any, context: Any) -> Any:
        """The kernel for these types of arguments; None when it must be compiled."""
        return self._opened.load_overload(signature, context)

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Keep what was compiled."""
        self._opened.save_overload(signature, compiled)


class _Locator(_CacheLocator):
    """Says to Numba where the machine code of a function is kept, and under what name."""

    def __init__(self, function: Callable[..., Any], file: str) -> None:
        self._source, self._py_file = source_hash(function), file

    def get_cache_path(self) -> str:
        return str(cache_folder("kernels"))

    def get_source_stamp(self) -> str:
        return self._source

    def get_disambiguator(self) -> str:
        return self._source

    @classmethod
    def from_function(cls, function: Callable[..., Any], file: str) -> "_Locator":
        return cls(function, file)


class _Implementation(CompileResultCacheImpl):
    _locator_classes = [_Locator]


class _Cache(FunctionCache):
    _impl_class = _Implementation


def source_hash(function: Callable[..., Any]) -> str:
    """Of the bytecode of a function, of all that it calls and of the constants they name."""
    digest, seen, waiting = hashlib.sha256(), set(), [function]
    while waiting:
        if (one := waiting.pop()) in seen:
            continue
        seen.add(one)
        # The machine code imports its module by name.
        digest.update(repr((one.__module__, one.__name__, one.__defaults__)).encode())
        for code in _codes(one.__code__):
            # Code inside is hashed by itself: its text would hold an
            # address, which no two processes share.
            plain = [c for c in code.co_consts if not isinstance(c, CodeType) and c != one.__doc__]
            digest.update(code.co_code + repr((plain, code.co_names, code.co_varnames)).encode())
            for name in code.co_names:
                value = one.__globals__.get(name)
                value = getattr(value, "py_func", value)  # of another kernel
                if isinstance(value, FunctionType):
                    waiting.append(value)
                elif isinstance(value, np.ndarray):
                    digest.update(value.tobytes())
                elif not isinstance(value, ModuleType):
                    digest.update(repr((value, getattr(value, "_fields", ()))).encode())
                elif value.__name__.startswith("tasks."):
                    raise TypeError(f"{one.__name__}: import what it uses of {value.__name__}")
    return digest.hexdigest()[:16]


def _codes(code: CodeType) -> Iterator[CodeType]:
    """A function's code and that of the functions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)
