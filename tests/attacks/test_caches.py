"""Attacks on what is kept between runs: false PTX, false decoded kernels, false machine code of the emulator."""

from __future__ import annotations

import errno
import gzip
import hashlib
import json
import os
import pickle
import shutil
import tempfile
import types
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from ways import StillGreenError, must_be_refused, still_green_if

from harness.contract.case import Flags
from harness.errors import Exit, StorageError
from harness.jit.compile import Compiled, compile_kernel
from harness.jit.signature import read_signatures
from ptx_emulator import private_files
from ptx_emulator.compiled.jit import entry
from ptx_emulator.launches import Module, launch
from ptx_emulator.memory import Buffer

FALSE = "// not this kernel\n"


def compiled(direction: str = "rowwise") -> Compiled:
    return compile_kernel(read_signatures("swizzle")["swizzle"], Flags({"direction": direction}), "compute_90a")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with two kernels in it."""
    folder = tmp_path_factory.mktemp("filled") / "cache"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HARNESS_CACHE", str(folder))
        compiled("rowwise"), compiled("columnwise")
    return folder


@pytest.fixture
def cache(filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = shutil.copytree(filled, tmp_path / "cache")
    monkeypatch.setenv("HARNESS_CACHE", str(folder))
    return folder


def believed(wrong: Callable[[str], bool]) -> None:
    """The kernel that the cache gives must not be a wrong one."""
    text = compiled().ptx
    still_green_if(wrong(text), f"believed: {text[:60]}")
    assert ".entry" in text


def forged(content: bytes, digests: dict[str, str]) -> bytes:
    """The record of an entry with other digests, and its own digest made to fit, as far as one can without a key."""
    start = content.index(b"[{" if b'"digests"' not in content else b'{"')  # behind bytes of any value
    stored = json.loads(content[start:])
    if isinstance(stored, dict):
        stored["digests"] = digests
        text = json.dumps([stored["record"], digests], sort_keys=True).encode()
        stored["digest"] = hashlib.sha256(text).hexdigest()
    else:
        stored[1] = digests
    text = json.dumps(stored).encode()
    return hashlib.sha256(text).digest()[:start] + text


def plant(folder: Path) -> None:
    """A false PTX in the entry of the kernel, with digests that fit."""
    key = compiled().key
    false = gzip.compress(FALSE.encode(), mtime=0)
    (folder / f"{key}.ptx.gz").write_bytes(false)
    (record,) = (path for path in folder.glob(f"{key}.*") if not path.name.endswith("ptx.gz"))
    record.write_bytes(forged(record.read_bytes(), {"ptx.gz": hashlib.sha256(false).hexdigest()}))


def test_a_false_kernel_with_the_right_digests(cache: Path):
    """PTX that somebody else wrote into the cache, its digests made to fit."""
    plant(cache)
    believed(lambda text: text == FALSE)


def test_an_entry_copied_over_another(cache: Path):
    """A kernel that passes, copied over the entry of one that does not."""
    right, other = compiled("columnwise"), compiled("rowwise")
    for path in cache.glob(f"{right.key}.*"):
        shutil.copy(path, cache / path.name.replace(right.key, other.key))
    believed(lambda text: text == right.ptx)


def test_an_entry_exchanged_after_its_check(cache: Path):
    """The file is another once its digest was compared."""
    found = compiled()
    (cache / f"{found.key}.ptx.gz").write_bytes(gzip.compress(FALSE.encode()))
    still_green_if(found.ptx == FALSE, "believed without a second look")


def test_an_entry_of_another_machine(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """An entry that a harness elsewhere wrote, of sources that had the same key there."""
    here, key = cache, compiled().key
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setenv("HARNESS_CACHE", str(elsewhere))
    from harness.jit import cache as store

    record = {name: getattr(compiled(), name) for name in ("expression", "arch", "symbol", "registers", "spill_bytes",
              "stack_bytes", "shared_bytes", "code_digest")}  # fmt: skip
    record["launch"] = vars(compiled().launch)
    store.store(key, record, {"ptx.gz": gzip.compress(FALSE.encode(), mtime=0)})
    for path in elsewhere.glob(f"{key}.*"):
        shutil.copy(path, here / path.name)
    monkeypatch.setenv("HARNESS_CACHE", str(here))
    believed(lambda text: text == FALSE)


def test_a_cache_of_another_user(cache: Path, monkeypatch: pytest.MonkeyPatch):
    """A cache that another user owns and fills."""
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    must_be_refused(compiled, "another user owns it")


def test_a_cache_that_others_could_write(cache: Path):
    """A folder that everybody may write, and so whatever lies in it."""
    plant(cache)
    cache.chmod(0o777)
    believed(lambda text: text == FALSE)
    still_green_if(cache.stat().st_mode & 0o077, "others may write there still")


def test_what_is_kept_is_nobody_else_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A cache made under an open umask, which everybody may change."""
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "new"))
    before = os.umask(0)
    try:
        compiled()
    finally:
        os.umask(before)
    made = [tmp_path / "new", *(tmp_path / "new").rglob("*")]
    open_to_others = [path.name for path in made if path.stat().st_mode & 0o077]
    still_green_if(open_to_others, f"others may read or write {open_to_others}")


# ---- decoded kernels ------------------------------------------------------------------------------------------------


def stores(number: int) -> str:
    return f""".version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out)
{{
 .reg .b64 %rd<2>; .reg .b32 %r<2>;
 ld.param.u64 %rd1, [out]; mov.u32 %r1, {number}; st.global.u32 [%rd1], %r1; ret;
}}
"""


def stored_by(number: int, folder: Path) -> int:
    out = np.zeros(1, np.uint32)
    launch(Module(stores(number), folder), "k", (1, 1, 1), (1, 1, 1), [Buffer("out", out.view(np.uint8))])
    return int(out[0])


def decoded(folder: Path) -> set[Path]:
    return set(folder.glob("*.decoded"))


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[Path, dict[int, list[Path]]]]:
    """A folder with the decoded kernels 1 and 2, and their files in the order of their sizes."""
    found: dict[int, list[Path]] = {}
    for number in (1, 2):
        before = decoded(tmp_path)
        assert stored_by(number, tmp_path) == number
        found[number] = sorted(decoded(tmp_path) - before, key=lambda path: path.stat().st_size)
    return tmp_path, found


def test_a_decoded_kernel_copied_over_another(two):
    """The decoded form of a kernel that passes in place of one that does not."""
    folder, files = two
    for right, wrong in zip(files[1], files[2], strict=True):
        shutil.copy(right, wrong)
    still_green_if(stored_by(2, folder) == 1, "another kernel ran")
    assert stored_by(2, folder) == 2


def test_a_decoded_kernel_with_the_right_digest(two):
    """A decoded kernel that somebody made, its SHA-256 in front."""
    folder, files = two
    for right, wrong in zip(files[1], files[2], strict=True):
        content = right.read_bytes()[32:]
        assert zlib.decompress(content)
        wrong.write_bytes(hashlib.sha256(content).digest() + content)
    still_green_if(stored_by(2, folder) == 1, "another kernel ran")


# ---- machine code of the emulator -----------------------------------------------------------------------------------


def function(number: int, name: str = "toy") -> Callable[[int], int]:
    """A new function that adds a number, on line `number` of no file."""
    code = compile("\n" * number + f"def {name}(x):\n    return x + {number}", __file__, "exec")
    space: dict[str, Callable] = {"__name__": __name__}
    exec(code, space)
    return types.FunctionType(space[name].__code__, space)


def added(number: int, name: str = "toy") -> int:
    return entry("int64(int64)")(function(number, name))(0)


class Runs:
    """Pickled, it runs code when it is read."""

    def __init__(self, marker: Path):
        self.marker = marker

    def __reduce__(self) -> tuple:
        return Path.touch, (self.marker,)


@pytest.mark.parametrize("prefix", [False, True], ids=["bare", "with its SHA-256"])
def test_a_file_of_machine_code_that_runs_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefix: bool):
    """A pickle in the cache of the compiled interpreter, which could patch the comparison."""
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    assert added(1) == 1
    marker = tmp_path / "ran"
    planted = pickle.dumps(Runs(marker))
    for path in (path for path in (tmp_path / "cache").rglob("*") if path.is_file()):
        path.write_bytes((hashlib.sha256(planted).digest() if prefix else b"") + planted)
    try:
        assert added(1) == 1
    except Exception:
        if not marker.exists():
            raise
    still_green_if(marker.exists(), "the file ran")


def test_machine_code_copied_over_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Machine code of one function of the emulator in place of another's."""
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path))
    files = {}
    for number, name in ((1, "one"), (2, "two")):
        before = set(tmp_path.rglob("*"))
        assert added(number, name) == number
        made = [path for path in set(tmp_path.rglob("*")) - before if path.suffix in (".nbc", ".machine_code")]
        (files[number],) = made
    shutil.copy(files[1], files[2])
    still_green_if(added(2, "two") == 1, "another function ran")
    assert added(2, "two") == 2


ENTRIES = {
    "no JSON": b"{",
    "no text": b"\xff",
    "null": b"null",
    "three values": b"[1, 2, 3]",
    "no record": b"[[], {}]",
    "no fields": b'[{"x": 1}, {}]',
    "digests that are none": b'[{}, {"ptx.gz": 5}]',
    "too deep": b"[" * 100_000,
}


def test_a_broken_entry_is_made_anew(cache: Path):
    """Signed entries that this harness never wrote, and files that are cut, empty or folders."""
    whole = compiled()

    def must_be_made_anew() -> None:
        try:
            assert compiled().ptx == whole.ptx
        except Exception as error:
            raise StillGreenError(f"no run goes on before the entry is removed: {error!r}") from error

    record, ptx = (cache / f"{whole.key}.{kind}" for kind in ("record", "ptx.gz"))
    for content in ENTRIES.values():
        private_files.write(cache, record.name, content)
        must_be_made_anew()
    for path in (record, ptx):
        for cut in (0, 40):
            path.write_bytes(path.read_bytes()[:cut])
            must_be_made_anew()
        path.unlink()
        path.mkdir()
        must_be_made_anew()


UNBUILT = {
    "no pickle": b"no pickle",
    "cut": pickle.dumps(list(range(99)))[:-9],
    "a module that is gone": b"cgone\nname\n.",
    "one value": pickle.dumps(5),
    "too few": pickle.dumps((1, 2)),
    "other values": pickle.dumps((None,) * 12),
}


def test_machine_code_that_cannot_be_rebuilt_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Signed bytes of the same user that are no machine code of this emulator."""
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path))
    assert added(3) == 3
    (path,) = tmp_path.rglob("*.machine_code")
    for content in UNBUILT.values():
        private_files.write(path.parent, path.name, content)
        broken = path.read_bytes()
        assert added(3) == 3
        assert path.read_bytes() != broken, "it was not kept anew"


@pytest.mark.parametrize("way", ["a file in its place", "below a file", "another user's", "read-only"])
def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str):
    folder = tmp_path / "cache"
    if way in ("a file in its place", "below a file"):
        folder.write_text("")
        folder = folder / "below" if way == "below a file" else folder
    elif way == "another user's":
        folder.mkdir()
        monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
    else:
        folder.mkdir()

        def refuse(*given, **more):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(folder))

        monkeypatch.setattr(tempfile, "mkstemp", refuse)
    monkeypatch.setenv("HARNESS_CACHE", str(folder))
    with pytest.raises(StorageError, match=f"{tmp_path}/cache.* cannot be written: (?!File exists).*; ") as refused:
        compiled()
    assert refused.value.exit_code is Exit.USAGE


@pytest.mark.parametrize("way", ["folder", "link", "a link to itself"])
def test_a_lock_that_is_no_file_is_named(cache: Path, tmp_path: Path, way: str):
    key = compiled().key
    (cache / f"{key}.record").unlink()
    lock = cache / f"{key[:2]}.lock"
    lock.unlink(missing_ok=True)
    if way == "folder":
        lock.mkdir()
    else:
        lock.symlink_to(tmp_path / "elsewhere" if way == "link" else lock)
    try:
        with pytest.raises(StorageError, match=r"\.lock cannot be opened: .*; remove it, or set HARNESS_CACHE"):
            compiled()
    except OSError as error:
        raise StillGreenError(f"no sentence says what to do: {error!r}") from error
