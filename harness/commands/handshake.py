from __future__ import annotations

from pathlib import Path

import click

from harness.commands import _shared
from harness.device.select import select
from harness.errors import DeviceUnavailable, UsageError, worst
from harness.report.console import show
from harness.subjects.handshake.pair import read_pair
from harness.subjects.handshake.verify import Handshake, Handshaker, require_agreement
from harness.text import nearest
from harness.verdict import Verdict, exit_words
from harness.verify.screen import screen_of_pair


@click.command()
@click.argument("pair", type=_shared.FILE, metavar="PAIR.yaml")
@click.option("--case", "names", multiple=True, metavar="SHAPE/INPUT", help="only this case of the pair")
@_shared.device("where both kernels run (auto)")
@_shared.recipe_dir
@_shared.include
def command(pair: Path, names: tuple[str, ...], device_name: str) -> int:
    """Have one kernel write and another read, and overwrite what the first does not define between them.

    The file names a producer and a consumer, each a card or a recipe. What they declare is compared before they run;
    then each is judged by its oracles, and a kernel whose bytes depend on those is named.
    """
    whole = read_pair(str(pair))
    cases = list(whole.cases())
    known = [name for name, _, _ in cases]
    for name in names:
        if name not in known:
            raise UsageError(f"{pair} has no case '{name}'{nearest(name, known)}")
    require_agreement(whole)
    shaker = Handshaker(whole, select(device_name))
    found = [shaker.shake(*each) for each in cases if not names or each[0] in names]
    import pandas as pd  # here, because a wrong word is refused without it

    show(pd.DataFrame(map(_row, found)), f"{whole.producer.name} writes, {whole.consumer.name} reads")
    for each in found:
        if each.story:
            click.echo(f"\n{screen_of_pair(each.story, whole.name, each.name, each.last.device)}")
    if all(each.verdict is Verdict.EXCLUDED for each in found):
        raise DeviceUnavailable(f"nothing ran: {found[0].last.reason}")
    code = worst(each.verdict.exit_code for each in found)
    if code:
        click.echo(f"\nexit {int(code)} ({exit_words(code, [each.verdict for each in found])})")
    return code


def _row(each: Handshake) -> dict[str, object]:
    return {
        "case": each.name,
        "producer": str(each.producer.verdict),
        "consumer": str(each.consumer.verdict) if each.consumer else "",
        "bytes compared": each.producer.bytes_compared + (each.consumer.bytes_compared if each.consumer else 0),
        "bytes poisoned": each.poisoned,
        "to blame": each.blamed,
    }
