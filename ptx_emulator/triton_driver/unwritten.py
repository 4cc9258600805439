"""Track memory that torch has allocated and nobody has written, to catch a kernel that reads it.

Torch reports each operator in this thread: which ones allocate without writing, and which arguments an operator writes.
Memory that leaves torch, for example as a NumPy array, counts as written from then on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

from ptx_emulator.triton_driver.memory import Storages

_ALLOCATES = ("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided")
_LEAVES = ("numpy", "__array__", "__dlpack__", "untyped_storage", "storage", "share_memory_")


@contextmanager
def followed(memory: Storages) -> Iterator[None]:
    """While the context lasts, tell `memory` what this thread's operators allocate and write."""
    follows_operators, follows_functions = _modes()
    with ExitStack() as stack:
        stack.enter_context(follows_functions(memory))
        stack.enter_context(follows_operators(memory))
        yield


@cache
def _modes() -> tuple[type, type]:
    import torch
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    allocates = {getattr(torch.ops.aten, name) for name in _ALLOCATES}
    leaves = {getattr(torch.Tensor, name) for name in _LEAVES}

    class FollowsOperators(TorchDispatchMode):
        def __init__(self, memory: Storages):
            super().__init__()
            self.memory = memory

        def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            result = operator(*args, **kwargs)
            if operator.overloadpacket in allocates and "out" not in kwargs:
                self.memory.allocated(result)
            for tensor in _written(operator, args, kwargs):
                self.memory.wrote(tensor)
            return result

    class FollowsFunctions(TorchFunctionMode):
        def __init__(self, memory: Storages):
            super().__init__()
            self.memory = memory

        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if function in leaves:
                self.memory.left(args[0])
            return function(*args, **(kwargs or {}))

    return FollowsOperators, FollowsFunctions


def _written(operator: Any, args: Iterable[Any], kwargs: dict[str, Any]) -> Iterator[Any]:
    """The tensors among the arguments that an operator writes."""
    args = tuple(args)
    for number, argument in enumerate(operator._schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        value = args[number] if number < len(args) else kwargs.get(argument.name)
        yield from value if isinstance(value, list | tuple) else (() if value is None else (value,))
