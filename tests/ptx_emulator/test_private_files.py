"""Files that only this user may have written: anything else under their names is as good as nothing."""

from __future__ import annotations

import os
import stat
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ptx_emulator import private_files, stored

CONTENT = bytes(range(256)) * 4


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    private_files.write(tmp_path / "kept", "name", CONTENT)
    return tmp_path / "kept"


def test_what_was_written_is_read(folder: Path):
    assert private_files.read(folder, "name") == CONTENT
    assert private_files.read(folder, "other") is None
    assert private_files.read(folder / "other", "name") is None


def test_folder_and_files_are_private_under_any_umask(tmp_path: Path):
    before = os.umask(0)
    try:
        private_files.write(tmp_path / "new", "name", CONTENT)
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in [tmp_path / "new", *(tmp_path / "new").iterdir()]}
    assert modes == {"new": 0o700, "name": 0o600, ".key": 0o600}


def _folder(path: Path) -> None:
    path.unlink()
    (path / "below").mkdir(parents=True)


def _link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _huge(path: Path) -> None:
    with path.open("ab") as file:
        file.truncate(1 << 40)


DAMAGE = {
    "gone": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "short": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "long": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "one bit": lambda path: path.write_bytes(path.read_bytes()[:-1] + bytes([path.read_bytes()[-1] ^ 1])),
    "a folder": _folder,
    "a link": _link,
    "a link to no end": lambda path: (path.unlink(), path.symlink_to("/dev/zero")),
    "a pipe": _pipe,
    "a terabyte": _huge,
    "a bomb": lambda path: path.write_bytes(zlib.compress(bytes(1 << 26))),
}


@pytest.mark.parametrize("name", ["name", ".key"])
@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_what_is_wrong_is_nothing_and_can_be_written_again(folder: Path, damage, name: str):
    damage(folder / name)
    assert private_files.read(folder, "name") is None
    for content in (CONTENT, CONTENT[::-1]):
        private_files.write(folder, "name", content)
        assert private_files.read(folder, "name") == content
    assert {path.name for path in folder.iterdir()} <= {"name", ".key", "elsewhere"}


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is unreadable to a privileged user")
def test_an_unreadable_file_is_nothing(folder: Path):
    (folder / "name").chmod(0)
    assert private_files.read(folder, "name") is None


def test_a_file_is_bound_to_its_name_and_its_folder(folder: Path, tmp_path: Path):
    private_files.write(folder, "other", b"")
    (folder / "name").replace(folder / "other")
    assert private_files.read(folder, "other") is None
    private_files.write(tmp_path / "second", "name", CONTENT)
    (tmp_path / "second" / "name").replace(folder / "name")
    assert private_files.read(folder, "name") is None


def test_a_folder_that_is_taken_along_keeps_what_it_holds(folder: Path, tmp_path: Path):
    """CI takes its caches along this way: with the key in the folder, and with the same modes."""
    folder.rename(tmp_path / "restored")
    assert private_files.read(tmp_path / "restored", "name") == CONTENT


@pytest.mark.parametrize("mode", [0o755, 0o750, 0o500])
def test_a_folder_that_others_could_only_read_is_closed(folder: Path, mode: int):
    folder.chmod(mode)
    assert private_files.read(folder, "name") == CONTENT
    assert stat.S_IMODE(folder.stat().st_mode) & 0o077 == 0


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_what_a_folder_held_while_others_could_write_is_not_believed(folder: Path, mode: int):
    folder.chmod(mode)
    assert private_files.read(folder, "name") is None
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    private_files.write(folder, "name", CONTENT)
    assert private_files.read(folder, "name") == CONTENT


def test_a_folder_of_another_user_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch):
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    with pytest.raises(PermissionError, match="another user owns it, and could change what is kept there"):
        private_files.private(folder)
    # The emulator works without what it keeps.
    assert stored.stored(folder, ("text",), lambda: 5) == 5
    assert not list(folder.glob("*.decoded"))


def test_of_many_that_make_a_key_at_once_one_does(tmp_path: Path):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: private_files.write(tmp_path / "new", f"{number}", CONTENT), range(32)))
    assert [private_files.read(tmp_path / "new", f"{number}") for number in range(32)] == [CONTENT] * 32
