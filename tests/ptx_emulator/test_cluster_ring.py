"""A ring of loads that two blocks of a cluster share: every synchronisation that it lacks is missed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from exercises import ALL
from test_exercises import emulated

from ptx_emulator.errors import Fault

(RING,) = (each for each in ALL if each.name == "cluster.ring")
MUTANTS = {
    "each block is told of its own reads alone": (
        ("init(empty[i], 4)", "init(empty[i], 2)"), ("if (t % 32 < 2)", "if (t % 32 == me)"),
    ),
    "no wait for the slot": (("if (turn >= 2) wait(empty[slot], turn / 2 - 1 & 1);", ""),),
    "the parity of the turn": (("turn / 2 - 1 & 1", "turn & 1"),),
    "half of the bytes": (("expect(full[slot], 512)", "expect(full[slot], 256)"),),
    "no __syncwarp before the arrival": (("    __syncwarp();\n", ""),),
    "read too early": (("    wait(full[slot], turn / 2 & 1);\n", ""),),
    "no fence of the init": (('    ASM("fence.mbarrier_init.release.cluster;");\n', ""),),
    "no barrier behind the init": (("  }\n  meet();", "  }\n  __syncthreads();"),),
    "no barrier at the end": (("= sum;\n  meet();", "= sum;"),),
    "a relaxed arrival": (("arrive.release.cluster", "arrive.relaxed.cluster"),),
}  # fmt: skip


@pytest.mark.parametrize("changes", MUTANTS.values(), ids=MUTANTS)
def test_a_mutant_is_caught(changes: tuple[tuple[str, str], ...]) -> None:
    source = RING.source
    for old, new in changes:
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    with pytest.raises(Fault):
        emulated(replace(RING, source=source))
