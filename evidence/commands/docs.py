from __future__ import annotations

import tempfile
from pathlib import Path

import click

from harness.commands import _shared
from harness.errors import Exit
from harness.files import write_text
from harness.records.run_folder import shown


@click.command()
@click.option("--check", is_flag=True, help="write nothing; exit with 1 if a page would change")
@click.option("--run", is_flag=True, help="run README and the quick start again, too, and show what they print")
def command(check: bool, run: bool) -> int:
    """Write what README and docs/ show of results/, and of commands.

    Tables and sentences between `<!-- rendered NAME -->` and `<!-- end -->` are made of the committed results. With
    --run the blocks `text whole` and `text brief` are what the commands before them print now.
    """
    from evidence.docs import pages
    from evidence.docs.transcript import WRITTEN, FromNothing, of_this_checkout, told_again

    _shared.require_checkout("docs")
    changed = []
    for page in pages.all_pages():
        text = page.read_text(encoding="utf-8")
        new = pages.rendered(page, text)
        if run and WRITTEN.search(text):
            with tempfile.TemporaryDirectory() as folder:
                session = FromNothing if "pip install" in text else of_this_checkout
                new = told_again(new, session(Path(folder).resolve()))
        if new != text:
            changed.append(page)
            if not check:
                write_text(page, new)
    for page in changed:
        click.echo(
            f"{shown(page)} {'is not what results/ say; `python -m evidence docs` writes it' if check else 'written'}"
        )
    return Exit.BYTES_DIFFER if check and changed else Exit.CLEAN
