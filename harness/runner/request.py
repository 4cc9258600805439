"""What a command line of pytest asks of a suite run, read without pytest, so that nothing else has a say in it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.errors import UsageError
from harness.files import is_own, resolved_path
from harness.runner.selection import Narrowing, Selection, select
from harness.suite.own_recipes import use_recipe_dir


@dataclass(frozen=True)
class Request:
    """The words of a command line that choose cases or the folder of a run. suites: in the order named"""

    suites: tuple[Path, ...]
    set_name: str
    ids: tuple[str, ...]
    shard: str
    narrowing: Narrowing
    run_dir: Path | None
    resume: bool
    subject: str
    selection: Selection | None = None

    @classmethod
    def of(cls, words: Sequence[str], folder: Path, rootdir: Path) -> Request:
        """Read the words. folder: where they were typed; rootdir: pytest's, to which node ids are relative

        Raises UsageError for an option without its value.
        """
        try:
            found, others = _parser().parse_known_args(list(words))
        except (argparse.ArgumentError, SystemExit) as error:
            raise UsageError(f"the command line cannot be read: {error}") from None
        named = [word for word in (*found.words, *others) if not word.startswith("-")]
        return cls.of_options(found, named, folder, rootdir)

    @classmethod
    def of_options(cls, option: argparse.Namespace, named: Sequence[str], folder: Path, rootdir: Path) -> Request:
        """The same from options that were read, ours or pytest's. named: the words that are no options"""
        for each in option.recipe_dir:
            use_recipe_dir(Path(folder, each))
        suites, nodes = named_suites(named, folder)
        return cls(
            suites, option.set or ("bench" if option.bench else "smoke"), tuple(option.case), option.shard,
            Narrowing(option.keyword, nodes, tuple(option.deselect or ()), rootdir), option.run_dir, option.resume,
            option.subject or "",
        )  # fmt: skip

    def selected(self) -> Request:
        """The same with its selection. Raises UsageError."""
        return replace(self, selection=select(self.suites, self.set_name, self.ids, self.shard, self.narrowing))


def named_suites(words: Sequence[str], folder: Path) -> tuple[tuple[Path, ...], dict[Path, frozenset[str]]]:
    """The suites that words name, directly or by their folder, and the cases by `FILE::ID` where not all are meant."""
    whole: dict[Path, bool] = {}
    nodes: dict[Path, set[str]] = {}
    for word in words:
        name, _, node = word.partition("::")
        path = resolved_path(Path(folder, name))
        if path.is_dir():
            below = path if path.name == "suites" else path / "suites"
            whole |= dict.fromkeys(sorted(below.glob("*.yaml")), True)
        elif path.suffix == ".yaml" and (path.parent.name == "suites" or is_own(path.parent)):
            whole[path] = whole.get(path, False) or not node
            if node:
                nodes.setdefault(path, set()).add(node)
    return tuple(whole), {path: frozenset(ids) for path, ids in nodes.items() if not whole[path]}


def named_path(text: str) -> Path:
    """A path of the command line. Raises ArgumentTypeError for an empty one, as of a shell variable that is not set."""
    if not text:
        raise argparse.ArgumentTypeError("the path is empty")
    return Path(text)


def _parser() -> argparse.ArgumentParser:
    """The options of ours and of pytest's that choose cases; any other word is left to pytest."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--set", default="")
    parser.add_argument("--recipe-dir", action="append", default=[])
    parser.add_argument("--case", action="append", default=[])
    parser.add_argument("--shard", default="1/1")
    parser.add_argument("--bench", action="store_true")
    parser.add_argument("--cluster", default="")
    parser.add_argument("--run-dir", type=named_path)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--subject", default="")
    parser.add_argument("-k", dest="keyword", default="")
    parser.add_argument("--deselect", action="append", default=[])
    # Other letters of pytest's, which may stand before a k, as in -xk, or before a word that is no file.
    for letter in "vqxsl":
        parser.add_argument(f"-{letter}", action="store_true")
    for letter in "nprcomW":
        parser.add_argument(f"-{letter}", action="append")
    return parser
