"""Whether a run was what its command line asked for: device, subject, folders of recipes, set and limits.

Plugins, conftests and files of pytest's may change these below the supervisor, which knows only the words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness.ground.command_lines import subject_of
from harness.runner.request import Request

_MAY_CHANGE = {"--case-timeout", "--cluster"}  # when a run goes on
_CALLED = {"emulator": ("emulator", "host"), "cuda": ("cuda",)}  # a function on the CPU runs on the host


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
