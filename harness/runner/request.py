"""A pytest command line's request to a suite run, parsed without pytest, so that no plugin or file can change it.

Plugins, conftests and files of pytest's may have the process below the supervisor run something else; `otherwise`
compares what a run says it was asked with the request.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.files import is_users, resolved_path, use_include_dir
from harness.ground.command_lines import Asked, is_card, subject_of
from harness.ground.strictness import use_strict
from harness.records.seal import require_no_link
from harness.runner.below_supervisor import first_option
from harness.runner.selection import Meant, Narrowing, Selection, select
from harness.suite.suite_file import use_recipe_dir
from harness.suite.wanted import Wanted

_CONFIGURE = ("--config-file", "--override-ini", "--rootdir", "--confcutdir")
_MAY_CHANGE = {"--case-timeout", "--cluster"}  # when a run goes on
_CALLED = {"emulator": ("emulator", "host"), "cuda": ("cuda",)}  # a function on the CPU runs on the host
CASE_TIMEOUT = 600  # seconds, without --case-timeout; inputs and oracles of the largest cases take a minute or two


@dataclass(frozen=True)
class Request:
    """The parts of a command line that choose cases, what runs them, or the folder of a run.

    suites: in the order named; named: the words for them, as absolute paths
    options: those that the verdict of every case may depend on, as words
    """

    suites: tuple[Path, ...]
    set_name: str
    ids: tuple[str, ...]
    shard: str
    narrowing: Narrowing
    run_dir: Path | None
    resume: bool
    subject: str
    device: str = "auto"
    bench: bool = False
    options: tuple[str, ...] = ()
    selection: Selection | None = None
    named: tuple[str, ...] = ()

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
        """Make a request from options that were already parsed, by us or by pytest.

        named: the words that are no options
        """
        if option.strict_ptx:
            use_strict()
        for each in option.recipe_dir:
            use_recipe_dir(Path(folder, each))
        for each in option.include:
            if not is_card(option.subject or ""):
                raise UsageError("--include names headers for the .cu of a card; name the card with --subject")
            use_include_dir(Path(folder, each))
        suites, nodes = named_suites(named, folder)
        whole = [str(Path(folder, word)) for word in named if named_suites([word], folder)[0]]
        for word in whole:
            for path in (Path(word.partition("::")[0]), *named_suites([word], folder)[0]):
                require_no_link(path)
        wanted = Wanted(tuple(option.flag), option.shape or "")
        narrowing = Narrowing(wanted, option.keyword, nodes, tuple(option.deselect or ()), rootdir)
        return cls(
            suites, option.set or ("bench" if option.bench else "smoke"), tuple(option.case), option.shard,
            narrowing, option.run_dir, option.resume,
            option.subject or "", option.device, bool(option.bench), tuple(_of_every_case(option)),
            named=tuple(whole),
        )  # fmt: skip

    def selected(self) -> Request:
        """The request with its selection of cases. Raises UsageError."""
        chosen = select(self.suites, self.set_name, self.ids, self.shard, self.narrowing, self._meant())
        return replace(self, selection=chosen)

    def leads_elsewhere(self) -> bool:
        """Whether the words name other suites by now, as where a link was turned."""
        try:
            return named_suites(self.named, Path())[0] != self.suites
        except UsageError:
            return True

    def asked(self) -> Asked:
        """The words that a command that repeats one of the cases needs beside the case."""
        return Asked.here(self.subject, self.options)

    def _meant(self) -> Meant | None:
        """The cases of the subject, if it is a card or declares flags. Raises UsageError if that cannot be read."""
        if not self.subject:
            return None
        if is_card(self.subject):
            from harness.subjects.card.card import read_card

            file = read_card(self.subject).file
            return Meant(file.recipe, file.flags)
        from harness.subjects.declared_flags import declared_flags

        flags = declared_flags(self.subject, self.suites)
        return Meant("", flags) if flags else None


def configuring(words: Sequence[str]) -> list[str]:
    """The options among some words that have pytest read another configuration or arguments of a file."""
    try:
        found, _ = _parser().parse_known_args(list(words))
    except (argparse.ArgumentError, SystemExit):
        return []  # `Request.of` says what is wrong
    given = [name for name in _CONFIGURE if getattr(found, name.strip("-").replace("-", "_"))]
    return [*given, *(word for word in words if word == "--"), *of_files(words)]


def left_to_pytest(words: Sequence[str]) -> str:
    """The first option that is not known here, so that only pytest and its plugins can know it; empty if none is."""
    try:
        return first_option(_parser().parse_known_args(list(words))[1])
    except (argparse.ArgumentError, SystemExit):
        return ""  # `Request.of` says what is wrong


def of_files(words: Sequence[str]) -> list[str]:
    """The words that have pytest read arguments of a file, such as `@words.txt`."""
    return [word for word in words if word.startswith("@")]


def named_suites(words: Sequence[str], folder: Path) -> tuple[tuple[Path, ...], dict[Path, frozenset[str]]]:
    """The suites that words name, directly or by their folder, and the cases of suites that are named by `FILE::ID`."""
    whole: dict[Path, bool] = {}
    nodes: dict[Path, set[str]] = {}
    for word in words:
        name, _, node = word.partition("::")
        path = resolved_path(Path(folder, name))
        if path.is_dir():
            below = path if path.name == "suites" else path / "suites"
            whole |= dict.fromkeys(sorted(below.glob("*.yaml")), True)
        elif path.suffix == ".yaml" and (path.parent.name == "suites" or is_users(path.parent)):
            whole[path] = whole.get(path, False) or not node
            if node:
                nodes.setdefault(path, set()).add(node)
    return tuple(whole), {path: frozenset(ids) for path, ids in nodes.items() if not whole[path]}


def named_path(text: str) -> Path:
    """A path on the command line. Raises ArgumentTypeError for an empty one, such as from an unset shell variable."""
    if not text:
        raise argparse.ArgumentTypeError("the path is empty")
    return Path(text)


def _of_every_case(option: argparse.Namespace) -> list[str]:
    """The words of a command line that each case's verdict may depend on: its longest time, and where it is run."""
    try:
        limit = f"{float(option.case_timeout):g}"
    except ValueError:
        limit = str(option.case_timeout)  # pytest's process says what is wrong with it
    words = [] if limit == f"{CASE_TIMEOUT:g}" else ["--case-timeout", limit]
    return [*words, *(["--cluster", option.cluster] if option.cluster else [])]


# Ours, as pytest and argparse take them. Their values are checked with the suites, because pytest would refuse them
# with its own exit code.
OPTIONS: dict[str, dict[str, Any]] = {
    "--set": {"metavar": "NAME", "help": "set of cases: smoke, full, bench, ... (smoke; bench with --bench)"},
    "--case": {"action": "append", "default": [], "metavar": "ID", "help": "only this case, even if no set has it"},
    "--flag": {
        "action": "append", "default": [], "metavar": "NAME=VALUE", "help": "only cases with this flag of their recipe",
    },
    "--shape": {"metavar": "RxC", "help": "only cases of this shape, as in 48x80, 8*1024x2048 or 64x512x128 (MxKxN)"},
    "--recipe-dir": {
        "action": "append", "default": [], "metavar": "DIR",
        "help": "a folder with recipes of yours: S.cu, S.py, S.yaml",
    },
    "--include": {
        "action": "append", "default": [], "metavar": "DIR", "help": "a folder whose headers a card's .cu may include",
    },
    "--shard": {"metavar": "I/N", "default": "1/1", "help": "only part I of N parts of like cost"},
    "--device": {"metavar": "NAME", "default": "auto", "help": "where kernels run: auto, emulator or cuda (auto)"},
    "--subject": {
        "metavar": "NAME",
        "help": "run this in place of our kernels: a subject, module:function, or the card.yaml of compiled code",
    },
    "--strict-ptx": {"action": "store_true", "help": "the emulator reports what PTX forbids and GPUs bear, too"},
    "--bench": {"action": "store_true", "help": "time every case that passes; needs a GPU"},
    "--cluster": {"metavar": "ADDRESS", "help": "run cases on the workers of the Dask scheduler at ADDRESS"},
    "--run-dir": {"type": named_path, "metavar": "DIR", "help": "where records and reports go (results/runs/<UTC>)"},
    "--resume": {"action": "store_true", "help": "go on with the run in --run-dir, or with the newest one"},
    "--case-timeout": {
        "default": CASE_TIMEOUT, "metavar": "SECONDS",
        "help": f"a case that takes longer is a LAUNCH_ERROR, and the run goes on ({CASE_TIMEOUT}; 0: no limit)",
    },
}  # fmt: skip


def _parser() -> argparse.ArgumentParser:
    """A parser for our options and pytest's that choose cases; any other word is left to pytest."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("words", nargs="*")
    for name, settings in OPTIONS.items():
        parser.add_argument(name, **settings)
    parser.add_argument("-k", dest="keyword", default="")
    parser.add_argument("--deselect", action="append", default=[])
    # Other short options of pytest, which may be combined with k, as in -xk, or be followed by a word that is no file.
    for letter in "vqxsl":
        parser.add_argument(f"-{letter}", action="store_true")
    for letter in "nprmW":
        parser.add_argument(f"-{letter}", action="append")
    parser.add_argument("-c", "--config-file", action="append")
    parser.add_argument("-o", "--override-ini", action="append")
    for name in ("--rootdir", "--confcutdir"):
        parser.add_argument(name, action="append")
    return parser


def otherwise(request: Request, about: Mapping[str, Any]) -> str:
    """How a run differs from the request, as a phrase; empty if it does not.

    about: the first line of its journal. A run that goes on may have been begun with another limit, on another
    cluster or in another folder.
    """
    return next(_differences(request, about), "")


def _differences(request: Request, about: Mapping[str, Any]) -> Iterator[str]:
    wanted, asked, device = request.asked(), about.get("asked"), about.get("device", {})
    if asked is None:
        yield "the run does not say what it was asked for"
        return
    if not wanted.same_subject(subject_of(about)):
        yield _pair("--subject", asked["subject"], wanted.subject)
    label = device.get("subject", "")
    if device and not (label.startswith(f"{asked['subject']} (") if asked["subject"] else not label):
        yield _pair("--subject", label, wanted.subject)
    if asked["recipe_dirs"] != wanted.recipe_dirs:
        yield _pair("--recipe-dir", _folders(asked["recipe_dirs"]), _folders(wanted.recipe_dirs))
    if subject_of(about).include_dirs != wanted.include_dirs:
        yield _pair("--include", ", ".join(subject_of(about).include_dirs), ", ".join(wanted.include_dirs))
    then, now = _options(asked["options"]), _options(wanted.options)
    for name in sorted({*then, *now} - (_MAY_CHANGE if request.resume else set())):
        if then.get(name) != now.get(name):
            yield _pair(name, then.get(name, ""), now.get(name, ""))
    ran, was_asked = device.get("device", ""), about.get("device_asked", request.device)
    if not request.resume and was_asked != request.device:
        yield _pair("--device", was_asked, request.device)
    if request.device != "auto" and ran not in ("", *_CALLED.get(request.device, ())):
        yield _pair("--device", ran, request.device)
    if bool(about.get("timed")) != request.bench:
        yield _pair("--bench", "on" if about.get("timed") else "", "on" if request.bench else "")
    if about.get("shard", request.shard) != request.shard:
        yield _pair("--shard", about["shard"], request.shard)
    if not request.resume and request.selection and about.get("set") != request.selection.set_name:
        yield _pair("--set", about.get("set", ""), request.selection.set_name)


def _pair(name: str, ran: str, asked: str) -> str:
    there, here = (f"'{each}'" if each else "not given" for each in (ran, asked))
    return f"where the cases ran, {name} was {there}, and on the command line it is {here}"


def _folders(recipe_dirs: Mapping[str, str]) -> str:
    return ", ".join(dict.fromkeys(recipe_dirs.values()))


def _options(words: Sequence[str]) -> dict[str, str]:
    """Options by their names, such as `--strict` and `--case-timeout 5`; of one without a value, `on`."""
    found: dict[str, str] = {}
    for word in words:
        if word.startswith("--"):
            found[word] = "on"
        elif found:
            found[[*found][-1]] = word
    return found
