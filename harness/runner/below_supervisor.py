"""What a supervisor starts below it: the program, its options and environment, and how it knows where it is."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from harness.errors import Exit
from harness.files import INSTALLED, RECIPE_DIRS, WORKDIR
from harness.text import nearest

CHILD = Path(__file__).resolve().with_name("pytest_child.py")
SUPERVISOR = "HARNESS_SUPERVISOR"  # environment variable: process id of the supervisor
# A child reports NO_DEVICE by this code, because pytest uses NO_DEVICE's own number for an unreadable command line.
NO_DEVICE_BELOW = 74
_OF_PYTEST = "PYTEST_"  # variables of this beginning choose options and plugins
_HARMLESS = ("PYTEST_XDIST_AUTO_NUM_WORKERS", "PYTEST_THEME", "PYTEST_THEME_MODE", "PYTEST_DEBUG_TEMPROOT")
_CHOOSE = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS")
# Options of pytest's under which it reads none of its files and runs no conftest.
_SETTINGS = (
    "-c", os.devnull, f"--rootdir={WORKDIR}", "--noconftest", "-o", "junit_family=xunit1", "-p", "harness.plugin",
)  # fmt: skip
# The same filters as in pyproject.toml, which is not read.
_WARNINGS = (
    "error",
    "ignore:Benchmarks are automatically disabled because xdist plugin is active",
    "ignore:Not saving",
)


class _PlainImports:
    """Loads our modules as they are, ahead of pytest, which would rewrite the asserts of its plugin's whole package.

    There are none, and to look for them in 250 files takes a second or two of every process.
    """

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        ours = name.partition(".")[0] in ("harness", "ptx_emulator", "evidence")
        # pytest warns of a plugin, and of a package of its distribution, that it finds loaded and not rewritten.
        left_to_pytest = name == "harness.runner.hooks" or "." not in name
        return None if left_to_pytest or not ours else PathFinder.find_spec(name, path)


if "_pytest.assertion.rewrite" in sys.modules:  # `harness.plugin` imports this module before the large ones
    sys.meta_path.insert(0, _PlainImports)


def settings() -> list[str]:
    """The options of pytest of every gate."""
    warnings = () if INSTALLED or RECIPE_DIRS else _WARNINGS
    return [*_SETTINGS, *(word for each in warnings for word in ("-W", each))]


def refused_by_pytest(words: Sequence[str]) -> tuple[str, str]:
    """The first option among words that neither pytest nor one of its plugins has, or else what pytest says of a value.

    Both are empty if there is nothing to say. Loads the plugins, so call it in a process that decides nothing.
    """
    from _pytest.config import UsageError, get_config

    with suppress(BaseException):  # a plugin may raise anything; then the process that runs the cases says it
        words = [*settings(), *words]
        config = get_config(words)
        config.pluginmanager.consider_preparse(words, exclude_only=False)
        config.pluginmanager.load_setuptools_entrypoints("pytest11")
        try:
            return first_option(config._parser.parse_known_and_unknown_args(words)[1]), ""
        except UsageError as error:
            return "", str(error).rpartition("error: ")[2]
    return "", ""


def first_option(unknown: Sequence[str]) -> str:
    """The first of some words that is an option, without its value; empty if none is."""
    return next((word.partition("=")[0] for word in unknown if word.startswith("-")), "")


def no_such_option(option: str, known: Iterable[str]) -> str:
    """A sentence on an unknown option. known: ours, of which one that is near is offered"""
    close = nearest(option, known)
    near = close if "did you mean" in close else "; `harness verify --help` and `pytest --help` list those that are"
    return f"there is no option '{option}'{near}"


def without_settings(words: Sequence[object]) -> list[str]:
    """The words of pytest without those of every gate."""
    found, ours = [str(word) for word in words], settings()
    start = next((at for at in range(len(found)) if found[at : at + len(ours)] == ours), len(found))
    return found[:start] + found[start + len(ours) :]


def without_pytests(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment without the variables that change what pytest loads or runs."""
    return {name: value for name, value in environment.items() if not name.startswith(_OF_PYTEST) or name in _HARMLESS}


def not_read(environment: Mapping[str, str]) -> str:
    """A sentence on variables that were set to choose what runs and are not read; empty if there are none."""
    found = [name for name in _CHOOSE if environment.get(name, "").strip()]
    are = "are" if len(found) > 1 else "is"
    return f"{' and '.join(found)} {are} not read: only the command line says what runs" if found else ""


def supervised() -> bool:
    """Whether a supervisor is above this process and decides the exit code.

    The variable alone says nothing, because anyone may set it. This process, or the one that started it as a worker,
    must run the program that a supervisor starts, and the named process, running this Python, must be above that.
    """
    child = next((pid for pid in (os.getpid(), os.getppid()) if _runs_child(pid)), 0)
    above = child and _parent(child)
    while above and str(above) != os.environ.get(SUPERVISOR):
        above = _parent(above)
    return bool(above) and _program(above) == _program(os.getpid())


def process_exit_code(code: int) -> int:
    """The exit code of this process that stands for an `Exit`; below a supervisor NO_DEVICE has a special one."""
    return NO_DEVICE_BELOW if code == Exit.NO_DEVICE and supervised() else code


def _runs_child(pid: int) -> bool:
    with suppress(OSError):
        _, *words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return words[:2] == [b"-P", os.fsencode(CHILD)]
    return False


def _program(pid: int) -> Path | None:
    with suppress(OSError):
        return Path(f"/proc/{pid}/exe").readlink()
    return None


def _parent(pid: int) -> int:
    with suppress(OSError, ValueError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0
