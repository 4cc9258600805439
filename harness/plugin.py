"""pytest's plugin for suites: its options, and who runs what a command line asks for.

A process whose command line names suites only supervises: pytest runs in one below it. What runs there, or where no
suite is named, gets its hooks from `harness.runner.hooks`; a process that supervises never loads what verifies.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from harness.errors import Exit, HarnessError
from harness.runner.below_supervisor import supervised
from harness.runner.request import CASE_TIMEOUT, named_path, named_suites
from harness.runner.supervisor import leave, supervise
from harness.suite.suite_file import use_recipe_dir
from harness.text import nearest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("nvfp4", "NVFP4 suites: pytest suites[/S.yaml]")
    group.addoption("--set", metavar="NAME", help="set of cases: smoke, full, bench, ... (smoke; bench with --bench)")
    group.addoption("--case", action="append", default=[], metavar="ID", help="only this case, even if no set has it")
    group.addoption(
        "--recipe-dir",
        action="append",
        default=[],
        metavar="DIR",
        help="a folder with recipes of yours: S.cu, S.py, S.yaml",
    )
    group.addoption(
        "--include", action="append", default=[], metavar="DIR", help="a folder whose headers a card's .cu may include"
    )
    group.addoption("--shard", default="1/1", metavar="I/N", help="only part I of N parts of like cost")
    # Their values are checked with the suites, because pytest would refuse them with its own exit code.
    group.addoption("--device", metavar="NAME", default="auto", help="where kernels run: auto, emulator or cuda (auto)")
    group.addoption(
        "--subject", metavar="NAME",
        help="run this in place of our kernels: a subject, module:function, or the card.yaml of compiled code",
    )  # fmt: skip
    group.addoption(
        "--strict-ptx", action="store_true", help="the emulator reports what PTX forbids and GPUs bear, too"
    )
    group.addoption("--bench", action="store_true", help="time every case that passes; needs a GPU")
    group.addoption(
        "--ahead", type=int, metavar="N", help="processes that prepare the next cases of a bench (the cores less two)"
    )
    group.addoption("--cluster", metavar="ADDRESS", help="run cases on the workers of the Dask scheduler at ADDRESS")
    group.addoption("--energy", action="store_true", help="with --bench: measure the energy of each graph, too")
    group.addoption(
        "--run-dir", type=named_path, metavar="DIR", help="where records and reports go (results/runs/<UTC>)"
    )
    group.addoption("--resume", action="store_true", help="go on with the run in --run-dir, or with the newest one")
    group.addoption(
        "--case-timeout", default=CASE_TIMEOUT, metavar="SECONDS",
        help=f"a case that takes longer is a LAUNCH_ERROR, and the run goes on ({CASE_TIMEOUT}; 0: no limit)",
    )  # fmt: skip


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(
    early_config: pytest.Config, parser: pytest.Parser, args: list[str]
) -> Generator[None, Any, Any]:
    """Run suites in a child process, before loading any conftest, which could end this process.

    It is a hook wrapper, because pytest starts to capture output in a wrapper of this hook.
    """
    with suppress(HarnessError):  # `Request` reports what is wrong with them
        for each in early_config.known_args_namespace.recipe_dir:
            use_recipe_dir(Path(early_config.invocation_params.dir, each))
    folder, words = early_config.invocation_params.dir, [str(word) for word in early_config.invocation_params.args]
    below = supervised()
    words += [] if below else _named_elsewhere(early_config, words)
    if below or not named_suites(words, folder)[0]:
        early_config.pluginmanager.import_plugin("harness.runner.hooks")
        loaded = yield
        if below:
            _refuse_unknown_options(parser, args)
        return loaded
    code = supervise(words, folder, early_config.rootpath, early_config.rootpath / "results" / "runs")
    if _is_pytest():
        leave(code)
    raise SystemExit(code)  # pytest.main was called by a program that may go on


def _is_pytest() -> bool:
    """Whether this process was started as pytest, and not as a program that calls it."""
    return Path(sys.argv[0]).parent.name == "pytest" or Path(sys.argv[0]).name == "pytest"


def _named_elsewhere(config: pytest.Config, words: list[str]) -> list[str]:
    """The suites that files and variables of pytest's name, or its current folder, in place of the command line."""
    if named_suites(words, config.invocation_params.dir)[0]:
        return []
    named = list(config.known_args_namespace.file_or_dir)
    if not named and config.invocation_params.dir == config.rootpath:
        named = [found for each in config.getini("testpaths") for found in sorted(Path().glob(each))]
    if not named and _is_pytest():  # another program, as `pytest-benchmark compare`, may want a config and no run
        named = [str(config.invocation_params.dir)]
    return [each for each in map(str, named) if named_suites([each], config.invocation_params.dir)[0]]


def _refuse_unknown_options(parser: pytest.Parser, args: list[str]) -> None:
    """End the process with one sentence for an unknown option; pytest would also print its usage."""
    _, unknown = parser.parse_known_and_unknown_args(args)
    option = next((word.partition("=")[0] for word in unknown if word.startswith("-")), None)
    if option is not None:
        ours = [name for each in parser.getgroup("nvfp4").options for name in each.names()]
        close = nearest(option, ours)
        near = close if "did you mean" in close else "; `harness verify --help` and `pytest --help` list those that are"
        print(f"error: there is no option '{option}'{near}", file=sys.stderr)
        raise SystemExit(Exit.USAGE)
