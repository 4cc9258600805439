"""Load a PTX module and launch its kernels."""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from ptx_emulator.compiled.loading import is_compiled
from ptx_emulator.counters import Counters, Traffic
from ptx_emulator.decode import decode
from ptx_emulator.errors import LaunchError, NotEmulated, NotOnTarget, RefusedLaunch
from ptx_emulator.machine.basic_blocks import Code
from ptx_emulator.machine.batch import Batch
from ptx_emulator.machine.fast_path import EarlyPath, FastPath, NumpyPath, buffer_table
from ptx_emulator.machine.launch_state import Extent, LaunchState, Resources, specials_of
from ptx_emulator.machine.residents import Residents, residency
from ptx_emulator.machine.scheduler import Scheduler, Tally
from ptx_emulator.machine.watch import Watch, WatchedScheduler
from ptx_emulator.memory import FIRST_WINDOW, WINDOW_BITS, Buffer
from ptx_emulator.process_order import ended, in_force
from ptx_emulator.ptx.limits import UNREADABLE
from ptx_emulator.ptx.parser import Program, parse
from ptx_emulator.ptx.syntax import PTX, Kernel, Variable
from ptx_emulator.races.borne import DEAD_READS, LateReads, chosen
from ptx_emulator.races.dependent_launches import Dependence
from ptx_emulator.races.global_memory import LAST_EPOCH, GlobalShadow
from ptx_emulator.schedule import ASCENDING, RunAhead, Schedule
from ptx_emulator.stored import stored
from ptx_emulator.unset import Unset, unset

LANES = 1 << 14  # lanes of a batch: enough to amortise a step, few enough to keep registers in cache
ASYNC_LANES = 1 << 11  # lanes of a batch whose threads have clocks of their own
BUDGET = 4_000_000  # instructions of a batch, each counted once for all its lanes
LARGEST_CLUSTER = 16
FUNCTIONS, FUNCTION = 8 << WINDOW_BITS, 16  # the address of a module's first function, where no memory is; to the next
PRINTED = 1 << 12  # lines printed by a launch that are shown
LARGEST_SHARED = 227 << 10
LARGEST_LOCAL = 1 << 30
WORKSPACE = 256  # bytes; cooperative groups use the first eight


class Module:
    """A PTX module: kernels, decoded when first launched, and variables.

    cache: a folder for decoded kernels; None to decode every time
    name: of its file, for places that have no line of a source
    """

    def __init__(self, text: str, cache: Path | None = None, name: str = PTX):
        self._text, self._cache, self._name = text, cache, name
        self._code: dict[str, Code] = {}
        declared = stored(cache, (text,), lambda: _Declared(self._program))
        self.target, self.kernels, self._declared = declared.target, declared.kernels, declared.variables
        # Decoded programs contain their addresses, so every process must assign the same ones.
        self.variables = {
            variable.name: Buffer(
                variable.name,
                np.zeros(variable.size, np.uint8),
                writable=variable.space != "const",
                window=FIRST_WINDOW + number,
            )
            for number, variable in enumerate(declared.variables.values())
            if variable.space in ("global", "const")
        }
        self._addresses = {name: FUNCTIONS + FUNCTION * number for number, name in enumerate(declared.functions)}
        self._addresses |= {name: buffer.address for name, buffer in self.variables.items()}
        for name, buffer in self.variables.items():
            buffer.data[:] = self._initial(self._declared[name])

    def _initial(self, variable: Variable) -> np.ndarray:
        """A variable's initial bytes. Raises NotEmulated for an address of something that has none."""
        out = np.frombuffer(variable.initial.ljust(variable.size, b"\0"), np.uint8).copy()
        for offset, name in variable.addresses:
            if name not in self._addresses:
                raise NotEmulated(f"not emulated: the initialiser of {variable.name!r} with the address of {name!r}")
            out[offset : offset + 8].view(np.uint64)[0] += np.uint64(self._addresses[name])
        return out

    @cached_property
    def _program(self) -> Program:
        return parse(self._text, self._name)

    @cached_property
    def digest(self) -> str:
        """Eight digits that tell this PTX from another's of the same names, as of other constants of a template."""
        return hashlib.sha256(self._text.encode()).hexdigest()[:8]

    @property
    def keeps(self) -> bool:
        """Whether it has a variable that a launch can write and a later one read."""
        return any(variable.writable for variable in self.variables.values())

    def constant(self, name: str) -> bytes:
        """The initialiser of a `.const` or `.global` variable. Raises LaunchError if there is none of that name."""
        variable = self._declared.get(name)
        if variable is None:
            raise LaunchError(f"the module has no variable {name!r}; it has {', '.join(self._declared) or 'none'}")
        return self._initial(variable).tobytes()

    def code(self, kernel: str) -> Code:
        """A decoded kernel. Raises RefusedLaunch if there is none of that name."""
        if kernel not in self._code:
            if kernel not in self.kernels:
                raise RefusedLaunch(f"the module has no kernel {kernel!r}; it has {', '.join(self.kernels) or 'none'}")
            with _one_sentence(kernel):
                self._code[kernel] = stored(
                    self._cache,
                    (self._text, self._name, kernel),
                    lambda: decode(self._program.kernel(kernel), self._declared, {**self._addresses}, self.target),
                )
        return self._code[kernel]

    def unset(self, kernel: str) -> tuple[Unset, ...]:
        """The variables without an initial value that a kernel reads and nothing in the module writes."""
        if all(each.initial or each.space not in ("global", "const") for each in self._declared.values()):
            return ()
        try:
            with _one_sentence(kernel):
                key = self._text, self._name, kernel, "unset"
                return stored(self._cache, key, lambda: unset(self._program, self._text, self._declared, kernel))
        except NotEmulated:
            return ()  # to launch it says so, too


class _Declared:
    """A module's names. target: the architecture, `sm_90a`; kernels, functions: names; variables: by name"""

    def __init__(self, program: Program):
        self.target, self.kernels, self.functions = program.target, tuple(program.entries), tuple(program.functions)
        self.variables = program.variables


Argument = Buffer | int | float | bytes


def launch(
    module: Module,
    kernel: str,
    grid: Extent,
    block: Extent,
    args: Sequence[Argument],
    dynamic_shared: int = 0,
    *,
    memory: Sequence[Buffer] = (),
    sanitize: bool = True,
    count_traffic: bool = True,
    budget: int = BUDGET,
    lanes: int = LANES,
    compiled: bool | None = None,
    schedule: Schedule = ASCENDING,
    echo: Callable[[str], object] | None = None,
    watch: Watch | None = None,
    cluster: Extent | None = None,
    cooperative: bool = False,
    dependence: Dependence | None = None,
    strict: bool | Collection[str] = False,
    only: Sequence[int] = (),
    late: LateReads | None = None,
    title: str = "",
) -> Counters:
    """Run a kernel to its end.

    args: one for each parameter: a Buffer for a pointer, an int or float for a number, bytes for a struct
    dynamic_shared: bytes; memory: buffers reached only through pointers in other memory
    sanitize: check for races and reads of unwritten shared memory; bounds and alignment are always checked
    count_traffic: count sectors and bank conflicts, which are 0 otherwise
    budget: what a batch may cost, in instructions, before it counts as endless; lanes: of a batch
    compiled: False to run every instruction by its NumPy step, True never to do so because another process is compiling
        the interpreter, which takes a minute, once
    echo: takes each line that the kernel prints, behind its block and thread; standard output, if absent
    watch: follows one thread, by NumPy steps
    schedule: the order of blocks and warps; it changes no counter, but one race may show only in one order. An order
        that this process is given (`process_order`) holds in its place
    cluster: blocks of a cluster, where the kernel does not say it
    cooperative: as by cudaLaunchCooperativeKernel, so that cooperative groups may synchronise the grid
    dependence: on the launches before, made by `stream.Stream`; a launch that may begin before they have ended runs by
        NumPy steps until all threads of a batch have waited for them
    strict: report what PTX forbids and GPUs bear, too: all of `races.borne`, or the entries named
    late: reads that come late in this run, which `launch` itself begins to see whether a byte depends on them
    title: how sentences name the kernel, in place of its name, which may be mangled

    Raises Fault, NotEmulated or LaunchError, which is NotOnTarget if the module's target lacks an instruction,
    and RefusedLaunch where CUDA would not begin the launch.
    """
    schedule, title = in_force(schedule), title or kernel
    code = module.code(kernel)
    resources = code.resources
    if resources.lacking:
        raise NotOnTarget(resources.lacking)
    _check_extents(title, resources.kernel, grid, block)
    cluster = _cluster(title, resources.kernel, grid, cluster)
    again = partial(
        launch, module, kernel, grid, block, args, dynamic_shared, memory=memory, sanitize=False, count_traffic=False,
        budget=budget, lanes=lanes, compiled=False, schedule=schedule, echo=lambda line: None, cluster=cluster,
        cooperative=cooperative, only=only, title=title,
    )  # fmt: skip
    schedule = replace(schedule, only=_only(only, math.prod(grid) // math.prod(cluster))) if only else schedule
    buffers = [*module.variables.values(), *memory, *(arg for arg in args if isinstance(arg, Buffer))]
    parameters = Buffer("the kernel's parameters", _parameters(title, resources, args), writable=False)
    memory = list({buffer.window: buffer for buffer in (parameters, *buffers)}.values())
    workspace = [Buffer("the workspace of grid.sync()", np.zeros(WORKSPACE, np.uint8))] if cooperative else []
    everywhere = [*memory, *workspace]
    state = LaunchState(
        resources, grid, block, {buffer.window: buffer for buffer in everywhere}, parameters.data, Traffic(),
        count_traffic, sanitize, buffer_table(everywhere), schedule=schedule, cluster=cluster,
        strict=chosen(strict, module.target), late=late, dependence=dependence if sanitize else None,
        target=module.target, echo=_LineLimit(echo or sys.stdout.write), title=title,
        by_warpgroup=any(each.takes_warpgroup for each in code.blocks),
        workspace=workspace[0].address if workspace else 0,
    )  # fmt: skip
    if sanitize:
        budget = min(budget, LAST_EPOCH // 8)  # one instruction begins at most a few epochs
        state.shadow = GlobalShadow(resources.cell_global, state.blocks, state.buffers, everywhere, state.cluster_size)
        state.shadow.strict = state.strict
        if DEAD_READS not in state.strict:
            state.shadow.late = LateReads.of(memory)
    shared_size = resources.shared_size + dynamic_shared
    if shared_size > LARGEST_SHARED:
        raise RefusedLaunch(f"{title}: {shared_size} bytes of shared memory, more than the {LARGEST_SHARED} of a block")
    if cooperative:
        _require_room(state, math.prod(grid), shared_size)
    lanes = min(lanes, ASYNC_LANES) if resources.asynchronous and sanitize else lanes
    batch_blocks = max(1, lanes // (-(-state.threads // 32) * 32))
    batch_blocks = -(-batch_blocks // state.cluster_size) * state.cluster_size
    if code.takes_clusters:  # some are left to be taken
        batch_blocks = min(batch_blocks, max(1, state.blocks // state.cluster_size // 2) * state.cluster_size)
    local = min(batch_blocks, state.blocks) * state.threads * resources.local_size
    if local > LARGEST_LOCAL:
        raise NotEmulated(f"not emulated: {title} takes {local} bytes of local memory for a batch; {LARGEST_LOCAL} fit")
    tally, path = Tally(code, budget), NumpyPath
    if not watch and (is_compiled() if compiled is None else compiled):
        path = EarlyPath if state.dependence and state.dependence.before else FastPath
    ahead = RunAhead(schedule.seed, code.counts_warps)

    def begin(first: int, blocks: int) -> Scheduler:
        specials = specials_of(state, first, blocks, parameters.address, dynamic_shared, shared_size)
        batch = Batch(state, first, blocks, shared_size, specials)
        if watch:
            return WatchedScheduler(batch, tally, code, ahead, watch)
        return Scheduler(batch, tally, path(batch, code), ahead)

    with np.errstate(all="ignore"), _one_sentence(title):
        Residents(state, begin, batch_blocks, shared_size, budget).run()
    if state.shadow and state.shadow.late and state.shadow.late.fault:
        state.shadow.late.require_dead(partial(again, late=state.shadow.late))
    if state.dependence:
        ids = {buffer.window: id(buffer) for buffer in memory}
        state.dependence.end(title, state.shadow, resources.accesses, ids)
    ended(f"{module.target} {kernel} {module.digest}", tuple(state.approximated))
    return _counters(state.traffic, tally, tuple(state.approximated))


@contextmanager
def _one_sentence(kernel: str) -> Iterator[None]:
    """Turn an error that decoding and running did not foresee into NotEmulated, with that error as its cause."""
    try:
        yield
    except (*UNREADABLE, MemoryError) as error:
        sentence = f"{type(error).__name__}: {str(error)[:100]}"
        raise NotEmulated(f"not emulated: something in {kernel}, which ended in {sentence}") from error


class _LineLimit:
    """Passes on only the first lines that a kernel prints."""

    def __init__(self, echo: Callable[[str], object]):
        self.echo, self.left = echo, PRINTED

    def __call__(self, line: str) -> None:
        self.left -= 1
        if self.left >= 0:
            self.echo(line)
        elif self.left == -1:
            self.echo(f"more than {PRINTED} lines are printed; the others are left out\n")


def _check_extents(title: str, kernel: Kernel, grid: Extent, block: Extent) -> None:
    threads = block[0] * block[1] * block[2]
    if min(block) < 1 or threads > kernel.max_threads:
        raise RefusedLaunch(f"{title}: a block of {block} threads, where 1 to {kernel.max_threads} are allowed")
    if min(grid) < 1 or grid[0] >= 1 << 31 or max(grid[1:]) > 65535:
        raise RefusedLaunch(f"{title}: a grid of {grid} blocks, where 1 to 2^31-1, 65535 and 65535 are allowed")


def _require_room(state: LaunchState, ctas: int, shared: int) -> None:
    """Raise RefusedLaunch if no GPU of the target holds all CTAs at once. shared: bytes of a CTA"""
    held = residency(state.target, state.threads, shared, state.cluster_size)
    if ctas > held.ctas:
        sentence = f"a cooperative launch of {ctas:,} CTAs of {state.threads:,} threads is too large"
        raise RefusedLaunch(f"{state.title}: {sentence}: {held.words}")


def _cluster(title: str, kernel: Kernel, grid: Extent, said: Extent | None) -> Extent:
    """The blocks of a cluster."""
    cluster = said or kernel.cluster or (1, 1, 1)
    if kernel.cluster and said and said != kernel.cluster:
        raise RefusedLaunch(f"{title}: clusters of {said} blocks, where the kernel has {kernel.cluster}")
    size = cluster[0] * cluster[1] * cluster[2]
    if min(cluster) < 1 or size > LARGEST_CLUSTER or any(a % b for a, b in zip(grid, cluster, strict=True)):
        sentence = f"a grid of {grid} blocks in clusters of {cluster}; {LARGEST_CLUSTER} blocks are allowed in one"
        raise RefusedLaunch(f"{title}: {sentence}, and the grid has to be a multiple")
    return cluster


def _only(numbers: Sequence[int], count: int) -> tuple[int, ...]:
    """The clusters that run. Raises LaunchError for one that the grid does not have."""
    wrong = next((number for number in numbers if not 0 <= number < count), None)
    if wrong is not None:
        raise LaunchError(f"only cluster {wrong} of {count} should run; they are numbered from 0")
    return tuple(int(number) for number in numbers)


def _parameters(title: str, resources: Resources, args: Sequence[Argument]) -> np.ndarray:
    """The parameter bytes of a launch. Raises RefusedLaunch if an argument does not fit its parameter."""
    declared = resources.kernel.parameters
    if len(args) != len(declared):
        raise RefusedLaunch(f"{title}: {len(args)} arguments for {len(declared)} parameters")
    out = np.zeros(resources.parameter_size, np.uint8)
    for i, (arg, parameter) in enumerate(zip(args, declared, strict=True)):
        content = _argument(arg, parameter.size)
        if len(content) != parameter.size:
            raise RefusedLaunch(f"{title}: argument {i} is {arg!r}, and the parameter has {parameter.size} bytes")
        start = resources.parameter_offsets[parameter.name]
        out[start : start + parameter.size] = np.frombuffer(content, np.uint8)
    return out


def _argument(arg: Argument, size: int) -> bytes:
    if isinstance(arg, Buffer):
        return arg.address.to_bytes(8, "little")
    if isinstance(arg, bytes):
        return arg
    if isinstance(arg, (float, np.floating)):
        return np.array(arg, {2: np.float16, 4: np.float32}.get(size, np.float64)).tobytes()
    number = int(arg)
    fits = -(1 << 8 * size - 1) <= number < 1 << 8 * size
    return (number & (1 << 8 * size) - 1).to_bytes(size, "little") if fits else b""


def _counters(traffic: Traffic, tally: Tally, approximated: tuple[str, ...]) -> Counters:
    opcodes = tally.opcodes()
    names = [each.name for each in fields(Traffic)[: len(traffic.compiled)]]
    counted = {name: getattr(traffic, name) + more for name, more in zip(names, traffic.compiled.tolist(), strict=True)}
    counted |= {"lane_instructions": tally.lane_instructions(), "warp_instructions": opcodes.total()}
    return Counters(barriers=traffic.barriers, opcodes=opcodes, approximated=approximated, **counted)
