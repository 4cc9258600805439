"""From `kernels/S.cu` and a choice of flags to PTX and a cubin, with NVRTC and no GPU.

The key of the cache covers the whole include closure, which CuPy's does not see.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from harness.errors import CompileError, NoDevice, RecipeError
from harness.files import KERNELS, is_users
from harness.ground.seconds import COMPILE, SECONDS
from harness.jit import cache, cuda_headers, plain_text
from harness.jit.geometry import LaunchGeometry, read_launch
from harness.jit.machine_code import code_digest, require_static, resources_of
from harness.jit.nvrtc import UNNAMED, Built, build, nvrtc_build
from harness.jit.signature import Signature, source_text

FLAGS = (
    "-std=c++17", "-ftz=false", "-fmad=false", "-prec-div=true", "-prec-sqrt=true", "-minimal", "--ptxas-options=-v",
)  # fmt: skip
# Line numbers are for the emulator. They make a cubin four times as large and leave its machine code unchanged.
LINES = "-lineinfo"
ARCHES = ("sm_80", "sm_90a", "sm_100a")
ON_REQUEST = ("sm_103a", "sm_120a", "sm_121a")  # these also compile and run, but CI does not test them

_NAMESPACE = re.compile(r"\bnamespace\b[^;()]*\{")
_PTX, _CUBIN = "ptx.gz", "cubin"
_INCLUDE = re.compile(r"^\s*#\s*include\s*(?P<target>.*)$", re.MULTILINE)
_ANGLED = re.compile(r"<((?:\w+/)*\w+(?:\.\w+)?)>\s*(//.*)?")
_QUOTED = re.compile(r'"((?:\w+/)*\w+\.cuh?)"\s*(//.*)?')  # a path with neither `..` nor a root


@dataclass(frozen=True)
class Examined:
    """The compiler's report on one instantiation of a kernel for one architecture.

    expression: `kernel<args>` as in C++; symbol: its mangled name; launch: its geometry
    registers, spill_bytes, stack_bytes, shared_bytes: as ptxas reports them
    code_digest: equal for two revisions exactly if they run the same machine code; empty where only PTX was made
    key: its entry's in the cache
    """

    expression: str
    arch: str
    symbol: str
    launch: LaunchGeometry
    registers: int
    spill_bytes: int
    stack_bytes: int
    shared_bytes: int
    code_digest: str
    key: str


@dataclass(frozen=True)
class Compiled(Examined):
    """One instantiation that can run, with its PTX and, for `sm_*`, its cubin.

    packed_ptx: compressed, as checked by the cache or as just made
    """

    packed_ptx: bytes = field(repr=False)
    file: ClassVar[str] = "ptx"  # what its places are of that have no line of the source

    @property
    def ptx(self) -> str:
        return gzip.decompress(self.packed_ptx).decode()

    @property
    def cubin_path(self) -> str:
        return str(cache.entry_path(self.key, _CUBIN))


Found = TypeVar("Found", bound=Examined)


def instantiation(signature: Signature, flags: Mapping[str, object]) -> str:
    """Spell `kernel<bf16, Rounding::sr>`, each template parameter from the flag of its name.

    Raises RecipeError if one lacks.
    """
    arguments = []
    for parameter in signature.template:
        if parameter.flag not in flags:
            raise RecipeError(
                f"{signature.where}: template parameter {parameter.name!r} of {signature.name} names no flag; "
                f"the flags are {', '.join(flags)}"
            )
        arguments.append(parameter.spell(flags[parameter.flag]))
    return f"{signature.name}<{', '.join(arguments)}>" if arguments else signature.name


def compile_kernel(signature: Signature, flags: Mapping[str, object], arch: str) -> Compiled:
    """Compile one instantiation, or take it from the cache. Raises CompileError with NVRTC's log.

    arch: `sm_90a`, or `compute_90a` for its PTX alone, with line numbers: no machine code, no registers, half the time
    """
    expression, sources, options, key = _question(signature, flags, arch)
    kinds = {_PTX} if _is_virtual(arch) else {_PTX, _CUBIN}
    found = _stored(key, kinds)
    if found is None:
        with SECONDS.of(COMPILE), cache.lock(key):
            found = _stored(key, kinds) or _compile(signature, expression, sources, arch, options, key)
    record, contents = found
    compiled = _read(Compiled, record, key, packed_ptx=contents[_PTX])
    return replace(compiled, launch=compiled.launch.of_case(flags))


def key_of(signature: Signature, flags: Mapping[str, object], arch: str) -> str:
    """The cache key of an instantiation; two that the compiler cannot tell apart share a key."""
    return _question(signature, flags, arch)[-1]


def _question(
    signature: Signature, flags: Mapping[str, object], arch: str
) -> tuple[str, dict[str, str], tuple[str, ...], str]:
    """The expression, sources and options for the compiler, and a digest of all of them."""
    expression = instantiation(signature, flags)
    sources = include_closure(signature.path)
    options = _options(arch, include_folders(sources, is_users(signature.path.parent)))
    return expression, sources, options, _key(sources, expression, options)


def examine(signature: Signature, flags: Mapping[str, object], arch: str) -> Examined:
    """Get the compiler's report on one instantiation for `sm_*`. Raises CompileError with NVRTC's log.

    Its machine code is not kept. Its PTX is, as that of `compute_*`, which is the same text: the emulator runs it, and
    making it again would take half the time.
    """
    expression, sources, options, key = _question(signature, flags, arch)
    with cache.lock(key):
        found = _stored(key, set())
        if found is None:
            # Lines go into the PTX and leave the machine code as it is.
            built = _build(signature.path.name, sources, {expression: signature}, arch, (*options, LINES))
            found = _record(built, signature, expression, arch), {}
            cache.store(key, *found)
            virtual = ptx_of(arch)
            only_ptx = replace(built, log="", cubin=b"")
            _keep(only_ptx, signature, expression, virtual, key_of(signature, flags, virtual))
    return _read(Examined, found[0], key)


def ptx_of(arch: str) -> str:
    """The virtual architecture: `compute_90a` for `sm_90a`."""
    return arch.replace("sm_", "compute_")


def include_closure(path: Path, folder: Path | None = None) -> dict[str, str]:
    """The file and every file it includes, directly or not, as text by its path below `folder`.

    folder: where every include starts from, whichever file it stands in; the file's own folder, if absent. What a
        recipe of the user's includes may lie beside it, or in the harness; headers of the CUDA toolkit are named by
        `include_folders`.
    Raises CompileError for an include that is not of the form `#include "folder/file.cuh"` or leads out of the folder,
    because the key of the cache could not cover it.
    """
    folder = folder or path.parent
    users = is_users(folder)
    sources: dict[str, str] = {}
    waiting = [(path.relative_to(folder).as_posix(), "")]
    while waiting:
        current, where = waiting.pop()
        if current in sources:
            continue
        beside = folder if not users or (folder / current).is_file() else KERNELS
        try:
            text = source_text(beside / current, current)
        except OSError:
            raise CompileError(f"{where or current}: no file {current!r} in the kernels' folder") from None
        # NVRTC gets the text in which the includes were found.
        sources[current] = _plain(text, folder) if users else text
        waiting += [(name, at) for name, at, angled in _includes(current, sources[current], users) if not angled]
    return sources


def include_folders(sources: Mapping[str, str], users: bool) -> dict[Path, str]:
    """Folder → version of the CUDA toolkits whose headers sources of the user's include, as in `<cuda_bf16.h>`.

    Raises CompileError for a header that no toolkit here has, NoDevice for one that this machine may be given.
    """
    found = {}
    for current, text in sources.items() if users else ():
        for name, where, angled in _includes(current, text, users):
            if angled:
                folder = cuda_headers.folder_with(name)
                if folder is None:
                    looked = ", ".join(map(str, cuda_headers.candidates()))
                    remedy = cuda_headers.remedy(name) or "`pip install nvidia-cuda-runtime` brings it"
                    refusal = NoDevice if cuda_headers.installable(name) else CompileError
                    raise refusal(f"{where}: no <{name}>: {remedy}; looked for in {looked}")
                found |= {each: cuda_headers.version(each) for each in cuda_headers.toolkit_of(folder)}
    return found


@lru_cache(maxsize=64)
def _plain(text: str, folder: Path) -> str:
    def has(target: str) -> bool:
        name = target[1:-1]
        return any((each / name).is_file() for each in (folder, KERNELS)) or bool(cuda_headers.folder_with(name))

    return plain_text.plain(text, lambda directive, target: f"#{directive} {target}", has)


@lru_cache(maxsize=512)  # every launch asks for the same few files that all kernels include
def _includes(current: str, text: str, users: bool) -> tuple[tuple[str, str, bool], ...]:
    """A file's includes: target, line, and whether in angle brackets, which only a user's file may use."""
    found = []
    for match in _INCLUDE.finditer(text):
        where = f"{current}:{text.count(chr(10), 0, match.start('target')) + 1}"
        quoted = _QUOTED.fullmatch(match["target"].strip())
        angled = _ANGLED.fullmatch(match["target"].strip()) if users else None
        if not quoted and not angled:
            more = " or `#include <header_of_cuda.h>`" if users else ""
            raise CompileError(f'{where}: only `#include "path/below/kernels.cuh"`{more} is allowed')
        found.append(((quoted or angled)[1], where, not quoted))
    return tuple(found)


def _options(arch: str, folders: Mapping[Path, str]) -> tuple[str, ...]:
    """The options for NVRTC. A toolkit's version is passed as a macro, so that it is part of the cache key."""
    toolkits = (word for folder, version in folders.items() for word in (f"-I{folder}", f"-DTOOLKIT_{version or 0}"))
    return (*FLAGS, *([LINES] if _is_virtual(arch) else []), f"-arch={arch}", *toolkits)


def _is_virtual(arch: str) -> bool:
    return arch.startswith("compute_")


def _key(sources: Mapping[str, str], expression: str, options: Sequence[str]) -> str:
    record = [field.name for field in fields(Examined)]
    text = json.dumps([sorted(sources.items()), options, nvrtc_build(), expression, record])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


Entry = tuple[dict[str, Any], dict[str, bytes]]  # the record of an instantiation, and its files by kind


def _stored(key: str, kinds: set[str]) -> Entry | None:
    """The cached entry of a key if it has files of these kinds, else None."""
    found = cache.load(key)
    if not found or not kinds <= set(found[1]):
        return None
    try:
        _read(Examined, found[0], key)
    except (KeyError, TypeError):  # fields of another harness
        return None
    return found


def _read(kind: type[Found], record: Mapping[str, Any], key: str, **more: bytes) -> Found:
    return kind(**{**record, "launch": LaunchGeometry(**record["launch"]), "key": key}, **more)


def _compile(
    signature: Signature, expression: str, sources: Mapping[str, str], arch: str, options: Sequence[str], key: str
) -> Entry:
    built = _build(signature.path.name, sources, {expression: signature}, arch, options)
    return _keep(built, signature, expression, arch, key)


def _keep(built: Built, signature: Signature, expression: str, arch: str, key: str) -> Entry:
    """Store what NVRTC made as an entry: PTX, and machine code if there is any."""
    record = _record(built, signature, expression, arch)
    files = {_PTX: gzip.compress(built.ptx.encode(), 6, mtime=0)}
    if built.cubin:
        files[_CUBIN] = built.cubin
    cache.store(key, record, files)
    return record, files


def _build(
    main: str, sources: Mapping[str, str], signatures: Mapping[str, Signature], arch: str, options: Sequence[str]
) -> Built:
    """Compile instantiations from the file `main`, with their launch geometry, as one program.

    signatures: by expression
    """
    launches = {_launch(signature): None for signature in signatures.values()}
    try:
        built = build(main, sources, [*signatures, *launches], options)
    except CompileError as error:
        sentence = _hidden(str(error), signatures, sources) or cuda_headers.of_the_host(str(error), sources)
        raise CompileError(sentence or f"{main}: NVRTC refused {', '.join(signatures)} for {arch}:\n{error}") from None
    for expression, signature in signatures.items():
        require_static(built.ptx, built.symbols[expression], sources, signature.where)
    return built


def _hidden(log: str, signatures: Mapping[str, Signature], sources: Mapping[str, str]) -> str:
    """A sentence on a kernel, or its Launch, that the source has and NVRTC does not find at file scope; else empty."""
    undefined = {expression for reason, expression in UNNAMED.findall(log) if reason.endswith(" is undefined")}
    for expression, signature in signatures.items():
        text = sources[signature.path.name]
        why = "in a namespace" if _NAMESPACE.search(text) else "left out by an `#if`, or in a class"
        if expression in undefined and f'"{signature.name}" is undefined' in log:
            return f"{signature.where}: {signature.name} is {why}; a kernel of a recipe stands at file scope"
        launch = f"{signature.name}_launch"
        if _launch(signature) in undefined and re.search(rf"\b{launch}\b", text):
            return f"{signature.path.name}: {launch} is {why}; the Launch of a recipe stands at file scope"
    return ""


def _launch(signature: Signature) -> str:
    return f"&{signature.name}_launch"


def _record(built: Built, signature: Signature, expression: str, arch: str) -> dict[str, Any]:
    """The fields of `Examined` for an instantiation that NVRTC made, without the key."""
    symbol = built.symbols[expression]
    resources = resources_of(built.log, symbol)
    return {
        "expression": expression,
        "arch": arch,
        "symbol": symbol,
        "launch": asdict(read_launch(built.ptx, built.symbols[_launch(signature)], signature.name, symbol)),
        "code_digest": code_digest(built.cubin, built.ptx, symbol, resources.items()) if built.cubin else "",
        **resources,
    }
