"""The matrix as a page: by distribution and by flag, then conventions, bugs, what is not offered, and a GPU's.

A page may keep the columns and rows of subjects that are not asked again: some need PTX that only its maker has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import pandas as pd

from evidence.agreement.answers import Answer, Kind, named_in
from evidence.agreement.committed import OnGpu
from harness.errors import UsageError
from harness.report.tables import markdown, plain
from harness.text import spell

NONE = "-"

HEAD = """# Who agrees with the oracles

Public implementations, each byte beside both oracles', on the inputs of the vectors (`harness vectors`) and on every
input of the plain recipe with the flags that others have, those with given amaxes at a shape of whole tiles of 32.

- equal: every byte
- order: a last bit differs, where another order of the same operations makes it differ
- convention: another choice, named below, explains every byte that differs
- bug: bytes that nothing the subject declares explains; where one block is wrong by itself, it is shown, and a cause
  is a defect without which the package, run again, leaves no such bytes
- {none}: not offered, with the reasons below

A cell counts cases. A subject named by a `.yaml` is compiled code on the emulator, launched as that card of
`docs/cards` says; its PTX is not in this tree, and [vendors.md](vendors.md) names the commits that it was compiled
from. Where a difference names a step of [numerics.md](../docs/numerics.md), the subject was run again with that step
made as there, and then no byte differed.
"""
BETWEEN = "; "
SUBJECTS, DISTRIBUTIONS, FLAGS = "Subjects", "By distribution", "By flag"
CONVENTIONS, BUGS, NOT_OFFERED = "Orders and conventions", "Bugs", "Not offered"
_MATRICES = (DISTRIBUTIONS, FLAGS)


def page(
    command: str,
    labels: Mapping[str, str],
    found: Sequence[Answer],
    on_gpu: Iterable[OnGpu],
    smallest: Mapping[tuple[str, str], str] | None = None,
    kept: str = "",
) -> str:
    """The page in Markdown.

    labels: by subject, its label with versions; smallest: by subject and difference, the smallest input
    kept: a page whose other subjects this one has, too. Raises UsageError if it is none.
    """
    offered = _offered(found)
    tables = {
        SUBJECTS: pd.DataFrame([{"subjects": BETWEEN.join(labels.values()), "command": f"`{command}`"}]),
        DISTRIBUTIONS: by_distribution(found, labels),
        FLAGS: matrix(offered, labels, _flags, "flag"),
        CONVENTIONS: conventions(offered, smallest or {}),
        BUGS: bugs(offered),
        NOT_OFFERED: not_offered(found),
    }
    parts = [HEAD.format(none=NONE)]
    for title, table in tables.items():
        text = table if title == SUBJECTS else table.map(plain)
        if kept:
            text = _joined(title, _table(kept, title, list(text.columns[:2])), text, labels)
        parts += [f"## {title}", markdown(text, str) if len(text) else "None."]
    for table in on_gpu:
        machine, about = table.about["machine"], table.about
        parts += [
            f"## On a GPU: {machine['gpu']}, commit {about['commit'][:7]}, {about['date'][:10]}",
            f"`{about['command']}`: cases of the bench, all of the distribution normal, graphs.",
            markdown(given(table)),
        ]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _table(page: str, title: str, keys: list[str]) -> pd.DataFrame:
    """The table under a title of a page, its cells as they stand there; without rows where the page says None.

    keys: its first columns. Raises UsageError for a page of another form.
    """
    _, found, rest = page.partition(f"\n## {title}\n\n")
    if not found:
        raise UsageError(f"the page to keep has no table '{title}'; `python -m evidence agreement --out` writes one")
    lines = [line[2:-2].split(" | ") for line in rest.partition("\n## ")[0].splitlines() if line.startswith("| ")]
    head, rows = (lines[0], lines[2:]) if lines else (keys, [])
    if head[:2] != keys or any(len(row) != len(head) for row in rows):
        raise UsageError(f"the page to keep has another table '{title}' than one of {', '.join(keys)}, … in whole rows")
    return pd.DataFrame(rows, columns=head)


def _joined(title: str, old: pd.DataFrame, new: pd.DataFrame, asked: Iterable[str]) -> pd.DataFrame:
    """Two tables of cells as one: of the old, what is of subjects that were not asked now."""
    asked = set(asked)
    if title in _MATRICES:
        keys = list(new.columns[:2])
        old = old.drop(columns=asked, errors="ignore")
        both = old.merge(new, how="outer", on=keys).fillna(NONE)
        return both[(both.drop(columns=keys) != NONE).any(axis=1)].sort_values(keys)
    if title == SUBJECTS:
        for row, labels in old["subjects"].str.split(BETWEEN).items():
            old.loc[row, "subjects"] = BETWEEN.join(label for label in labels if label.split(" ")[0] not in asked)
        return pd.concat([old[old["subjects"] != ""], new])
    both = pd.concat([old[~old["subject"].isin(asked)], new]).reindex(columns=new.columns).fillna(NONE)
    return both.sort_values("subject", kind="stable")


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


def conventions(found: Iterable[Answer], smallest: Mapping[tuple[str, str], str]) -> pd.DataFrame:
    """How many cases each named difference explains, the smallest of them, and its smallest input."""
    cases: dict[tuple[str, str], list[Answer]] = {}
    for answer in found:
        if answer.kind in (Kind.ORDER, Kind.CONVENTION):
            for reason in answer.reasons:
                cases.setdefault((answer.subject, named_in(reason)), []).append(answer)
    rows = []
    for (subject, convention), all_of in sorted(cases.items()):
        first = min(all_of, key=_size)
        said = next(reason for reason in first.reasons if named_in(reason) == convention)
        rows.append({
            "subject": subject, "what": convention, "cases": len(all_of), "smallest": first.case.id,
            "there": said, "smallest input": smallest.get((subject, convention)) or NONE,
        })  # fmt: skip
    return pd.DataFrame(rows, columns=["subject", "what", "cases", "smallest", "there", "smallest input"])


def bugs(found: Iterable[Answer]) -> pd.DataFrame:
    """Every case with unexplained bytes, the smallest first."""
    wrong = sorted((each for each in found if each.kind is Kind.BUG), key=lambda each: (each.subject, _size(each)))
    return pd.DataFrame(
        [
            {
                "subject": each.subject,
                "case": each.case.id,
                "smallest input, or first difference": "; ".join(each.reasons),
                "cause": each.cause or NONE,
            }
            for each in wrong
        ],
        columns=["subject", "case", "smallest input, or first difference", "cause"],
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
