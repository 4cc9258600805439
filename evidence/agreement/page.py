"""The matrix as a page: by distribution and by flag, then conventions, bugs, what is not offered, and a GPU's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import pandas as pd

from evidence.agreement.answers import Answer, Kind
from evidence.agreement.committed import OnGpu
from harness.ground.command_lines import is_card
from harness.report.tables import markdown
from harness.text import spell

NONE = "-"

HEAD = """# Who agrees with the oracles

`{command}`

Public implementations, each byte beside both oracles', on the inputs of the vectors (`harness vectors`) and on every
input of the plain recipe with the flags that others have, those with given amaxes at a shape of whole tiles of 32.

- equal: every byte
- order: a last bit differs, where another order of the same operations makes it differ
- convention: another choice, named below, explains every byte that differs
- bug: bytes that nothing the subject declares explains; where one block is wrong by itself, it is shown, and a cause
  is a defect without which the package, run again, leaves no such bytes
- {none}: not offered, with the reasons below

A cell counts cases. {subjects}

"""
CARDS = """A subject named by a `.yaml` is compiled code on the emulator, \
launched as that card of `docs/cards` says. The PTX is not
in this tree; [vendors.md](vendors.md) names the commits that it was compiled from.

"""


def page(command: str, labels: Mapping[str, str], found: Sequence[Answer], on_gpu: Iterable[OnGpu]) -> str:
    """The page in Markdown. labels: by subject, its label with versions"""
    offered = _offered(found)
    subjects = "The subjects: " + "; ".join(labels.values()) + "."
    parts = [HEAD.format(command=command, none=NONE, subjects=subjects)]
    parts += [CARDS] if any(is_card(name) for name in labels) else []
    parts += ["## By distribution", markdown(by_distribution(found, labels))]
    parts += ["## By flag", markdown(matrix(offered, labels, _flags, "flag"))]
    parts += ["## Orders and conventions", markdown(conventions(offered))]
    parts += ["## Bugs", markdown(bugs(offered)) if any(each.kind is Kind.BUG for each in offered) else "None."]
    parts += ["## Not offered", markdown(not_offered(found))]
    for table in on_gpu:
        machine, about = table.about["machine"], table.about
        parts += [
            f"## On a GPU: {machine['gpu']}, commit {about['commit'][:7]}, {about['date'][:10]}",
            f"`{about['command']}`: cases of the bench, all of the distribution normal, graphs.",
            markdown(given(table)),
        ]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def by_distribution(found: Iterable[Answer], subjects: Iterable[str]) -> pd.DataFrame:
    return matrix(_offered(found), subjects, _distribution, "input")


def _offered(found: Iterable[Answer]) -> list[Answer]:
    return [each for each in found if each.kind is not Kind.NOT_OFFERED]


def _distribution(answer: Answer) -> list[str]:
    return [answer.case.input.rpartition("/")[2]]


def _flags(answer: Answer) -> list[str]:
    return [f"{name}={spell(value)}" for name, value in answer.case.flags.items()]


def matrix(
    found: Iterable[Answer], subjects: Iterable[str], rows_of: Callable[[Answer], list[str]], name: str
) -> pd.DataFrame:
    """A row for each recipe and each label that `rows_of` gives to a case, and a column for each subject."""
    cells: dict[tuple[str, str], dict[str, Counter[Kind]]] = {}
    for answer in found:
        for row in rows_of(answer):
            cell = cells.setdefault((answer.case.recipe, row), {})
            cell.setdefault(answer.subject, Counter())[answer.kind] += 1
    return pd.DataFrame(
        [
            {"recipe": recipe, name: row, **{subject: counted(cell.get(subject, {})) for subject in subjects}}
            for (recipe, row), cell in sorted(cells.items())
        ],
        columns=["recipe", name, *subjects],
    )


def counted(kinds: Mapping[Kind, int]) -> str:
    """Text such as `bug 1, equal 3`, the worst kind first."""
    worst = (Kind.BUG, Kind.CONVENTION, Kind.ORDER, Kind.EQUAL, Kind.NOT_OFFERED)
    return ", ".join(f"{kind} {kinds[kind]}" for kind in worst if kinds.get(kind)) or NONE


def conventions(found: Iterable[Answer]) -> pd.DataFrame:
    """How many cases each named difference explains, and the smallest of them."""
    cases: dict[tuple[str, str], list[Answer]] = {}
    for answer in found:
        if answer.kind in (Kind.ORDER, Kind.CONVENTION):
            for reason in answer.reasons:
                cases.setdefault((answer.subject, reason.partition(":")[0]), []).append(answer)
    rows = []
    for (subject, convention), all_of in sorted(cases.items()):
        first = min(all_of, key=_size)
        said = next(reason for reason in first.reasons if reason.startswith(convention))
        rows.append(
            {"subject": subject, "what": convention, "cases": len(all_of), "smallest": _id(first), "there": said}
        )
    return pd.DataFrame(rows, columns=["subject", "what", "cases", "smallest", "there"])


def bugs(found: Iterable[Answer]) -> pd.DataFrame:
    """Every case with unexplained bytes, the smallest first."""
    wrong = sorted((each for each in found if each.kind is Kind.BUG), key=lambda each: (each.subject, _size(each)))
    return pd.DataFrame(
        [
            {
                "subject": each.subject,
                "case": _id(each),
                "smallest input, or first difference": "; ".join(each.reasons),
                "cause": each.cause or NONE,
            }
            for each in wrong
        ]
    )


def not_offered(found: Iterable[Answer]) -> pd.DataFrame:
    """How many cases each subject does not take, by its reason."""
    reasons = Counter((each.subject, each.reasons[0]) for each in found if each.kind is Kind.NOT_OFFERED)
    rows = [
        {"subject": subject, "because": because, "cases": count}
        for (subject, because), count in sorted(reasons.items())
    ]
    return pd.DataFrame(rows, columns=["subject", "because", "cases"])


def given(table: OnGpu) -> pd.DataFrame:
    """A row for each case and subject of a committed table, all shapes together."""
    cells: dict[tuple[str, str], list] = {}
    for each in table.given:
        recipe, variant, _, _ = each.case.split("/", 3)
        cells.setdefault((f"{recipe}/{variant}", each.subject), []).append(each)
    rows = []
    for (case, subject), all_of in sorted(cells.items()):
        says = Counter(reason.partition(":")[0] for each in all_of for reason in each.reasons)
        kinds = counted(Counter(each.kind for each in all_of))
        rows.append({"case": case, "subject": subject, "shapes": kinds, "because": "; ".join(sorted(says))})
    return pd.DataFrame(rows)


def _size(answer: Answer) -> tuple[int, str]:
    return answer.case.elements, answer.case.id


def _id(answer: Answer) -> str:
    return answer.case.id
