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
from harness.runner.below_supervisor import first_option, no_such_option, supervised
from harness.runner.request import OPTIONS, named_suites
from harness.runner.supervisor import leave, supervise
from harness.suite.suite_file import use_recipe_dir


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("nvfp4", "NVFP4 suites: pytest suites[/S.yaml]")
    for name, settings in OPTIONS.items():
        group.addoption(name, **settings)
    group.addoption(
        "--ahead", type=int, metavar="N", help="processes that prepare the next cases of a bench (the cores less two)"
    )
    group.addoption("--energy", action="store_true", help="with --bench: measure the energy of each graph, too")


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
    if option := first_option(parser.parse_known_and_unknown_args(args)[1]):
        ours = [name for each in parser.getgroup("nvfp4").options for name in each.names()]
        print(f"error: {no_such_option(option, ours)}", file=sys.stderr)
        raise SystemExit(Exit.USAGE)
