"""Put all tables of a folder into `results/`, together or not at all."""

from __future__ import annotations

import re
from pathlib import Path

from evidence.committed.catalogue import load
from evidence.committed.parts import FILE, Making, digest, replaced
from evidence.committed.state import state
from harness.errors import UsageError
from harness.files import RESULTS, in_workdir, storage, write_bytes, write_text
from harness.records.run_folder import shown


def install(making: Making, results: Path = RESULTS) -> list[Path]:
    """Put all tables into `results/`, and `tables.json`, which names their state and the digest of every file.

    Raises UsageError, before anything is written, if a table is missing or a file of one was changed or lost.
    """
    if making.left:
        raise UsageError(f"{', '.join(making.left)}: not made yet, and tables of two states are not mixed")
    if state() != making.state:
        raise UsageError("the sources changed since the tables were made; begin anew in another --into")
    _require_whole(making, results)
    if before := replaced(results):
        making.others = before.beside_new(making.gpu)
        making.save()  # because what is interrupted now finds no tables.json in results/
    # An interrupt from here on leaves files of two states, but no tables.json that claims they are one.
    with storage(results / FILE):
        (results / FILE).unlink(missing_ok=True)
    written, put = [], Making(results, making.state, making.commit, making.gpu)
    put.others = making.others
    for name, table in load()[0].items():
        if name in making.kept:
            put.made[name] = making.kept[name]
            continue
        digests = {}
        for target, source in table.files_of(making.gpu).items():
            content = (making.folder / name / source).read_bytes()
            if target.endswith(".md"):
                content = _moved(content, making.folder / name, Path(target).parent)
            written.append(results / target)
            write_bytes(written[-1], content)
            digests[target] = digest(content)
        put.made[name] = making.made[name] | {"files": digests}
    write_text(results / FILE, put.text())
    return [*written, results / FILE]


def _require_whole(making: Making, results: Path) -> None:
    tables, found = load()[0], making.altered(among_parts=True)
    if not found:
        return
    # Tables that were cut out of a run are made again with it.
    again = [name for name in tables if name in found or tables[name].part_of in found]
    raise UsageError(
        f"{'; '.join(why for each in found.values() for why in each)}; nothing was put into {shown(results)}. Delete "
        f"what is there of that, take {', '.join(again)} out of {making.folder / FILE}, and the same command makes "
        f"{'that table' if len(again) == 1 else 'those tables'} again"
    )


def _moved(page: bytes, there: Path, put: Path) -> bytes:
    """Change a page's own command line to write to the page's place in `results/` instead of the folder of parts.

    Paths below the folder stay unchanged, so that a command that reads them is the one that was run.
    """
    folder = re.escape(str(in_workdir(there)))
    text = page.decode("utf-8", "surrogateescape")
    return re.sub(rf"{folder}(?![/\w])", lambda _: str("results" / put), text).encode("utf-8", "surrogateescape")
