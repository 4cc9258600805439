"""GPUs with a smaller L2, fewer multiprocessors and less shared memory than an H200, described, so that none is needed.

What follows from such numbers is held to them: grids, launches whose CTAs wait for each other, copies that evict each
other from the L2, and what is excluded because the GPU cannot hold it.
"""

from __future__ import annotations

from math import prod
from pathlib import Path

import pytest

from harness.bench.cold_copies import COLD, MOST_COPIES, copies_for
from harness.device.capability import CONTEXT, incapable, needed
from harness.device.cuda import CudaDevice
from harness.device.cuda_code import native_target
from harness.device.emulator import EmulatorDevice
from harness.device.launches import recipe_launches
from harness.files import KERNELS
from harness.jit.compile import Compiled
from harness.jit.geometry import Schedule
from harness.subjects.card.card import read_card
from harness.subjects.card.device import with_card
from harness.suite.suite import find_case
from harness.verdict import Verdict
from harness.verify.verify import verify

REGISTERS = 1 << 16  # of a multiprocessor, of every chip since sm_80
STATIC = 48 << 10  # bytes of shared memory that a kernel may declare on any chip


class Chip(CudaDevice):
    """A GPU that need not exist. shared: KiB of shared memory of a multiprocessor, of which a CTA has one less"""

    def __init__(
        self, capability: tuple[int, int], multiprocessors: int, threads: int, ctas: int, shared: int, l2: int, gib: int
    ):
        major, minor = capability
        self.properties = {
            "major": major, "minor": minor, "multiProcessorCount": multiprocessors, "l2CacheSize": l2 << 20,
            "maxThreadsPerMultiProcessor": threads, "maxBlocksPerMultiProcessor": ctas,
            "sharedMemPerMultiprocessor": shared << 10, "sharedMemPerBlockOptin": (shared - 1) << 10,
        }  # fmt: skip
        self.targets, self.multiprocessors, self.memory = (native_target(major, minor),), multiprocessors, gib << 30

    def held(self, kernel: Compiled) -> int:
        """CTAs of a kernel that a multiprocessor holds at once: what CUDA's occupancy calculator says."""
        warps = -(-kernel.launch.threads // 32)
        of_a_warp = -(-32 * kernel.registers // 256) * 256
        return min(
            self.properties["maxThreadsPerMultiProcessor"] // (32 * warps),
            self.properties["maxBlocksPerMultiProcessor"],
            self.properties["sharedMemPerMultiprocessor"] // (kernel.shared_bytes + 1024),
            REGISTERS // of_a_warp // warps,
        )


CHIPS = {
    "A100": Chip((8, 0), 108, 2048, 32, 164, 40, 40),
    "L4": Chip((8, 9), 58, 1536, 24, 100, 48, 23),
    "RTX 5060": Chip((12, 0), 30, 1536, 24, 100, 32, 8),
    "H200": Chip((9, 0), 132, 2048, 32, 228, 60, 139),
}
RESIDENT = [  # a shape that all of them hold at once, and one that none does
    ("per_token/default/512x512/normal/eager", True),
    ("per_token/default/8192x8192/normal/eager", False),
    ("grouped/recipe=per_token/128+256+128x512/normal/eager", True),
]
SHARED = [  # more tiles than CTAs: a grid of what a multiprocessor holds, times multiprocessors
    "per_tensor/stage=amax/8192x8192/normal/eager", "per_token/stage=amax/8192x8192/normal/eager",
    "grouped/stage=amax/8*1024x8192/normal/eager",
]  # fmt: skip


@pytest.fixture(params=[pytest.param(name, marks=[pytest.mark.slow] if name == "L4" else []) for name in CHIPS])
def chip(request: pytest.FixtureRequest) -> Chip:
    return CHIPS[request.param]


@pytest.mark.parametrize(("case_id", "fits"), RESIDENT)
def test_ctas_that_wait_for_each_other_are_launched_where_all_run_at_once(chip: Chip, case_id: str, fits: bool):
    case = find_case(case_id)
    found = recipe_launches(case, chip.targets[0], KERNELS, chip.multiprocessors, chip.held)
    together = [each for each in found.of_kernels if each.together]
    assert len(together) == fits == (len(found.of_kernels) == 1)
    assert all(prod(each.grids[0]) <= chip.held(each.code) * chip.multiprocessors for each in together)
    assert all(each.code.shared_bytes <= STATIC and chip.held(each.code) >= 1 for each in found.of_kernels)


def test_fewer_multiprocessors_hold_fewer_tiles():
    """528 tiles are what an H200 holds; what has as many is two launches on a smaller chip."""
    case = find_case("per_token/default/2816x3072/normal/eager")
    counts = {
        name: sum(
            each.together
            for each in recipe_launches(case, chip.targets[0], KERNELS, chip.multiprocessors, chip.held).of_kernels
        )
        for name, chip in CHIPS.items()
    }
    assert counts == {"A100": 0, "L4": 0, "RTX 5060": 0, "H200": 1}


@pytest.mark.parametrize("case_id", SHARED)
def test_a_grid_that_shares_tiles_is_of_the_chips_size(chip: Chip, case_id: str):
    found = recipe_launches(find_case(case_id), "compute_90a", KERNELS, chip.multiprocessors, lambda kernel: 1)
    shared = [each for each in found.of_kernels if each.code.launch.schedule == Schedule.PERSISTENT]
    assert shared
    for each in shared:
        assert prod(each.grids[0]) == each.code.launch.blocks_per_sm * chip.multiprocessors


def test_what_does_not_fit_at_once_has_the_same_bytes():
    """Six tiles on one multiprocessor that holds four; `test_emulated_kernels` has more grids."""
    case = find_case("per_token/default/256x384/normal/eager")
    small = EmulatorDevice(multiprocessors=1)
    assert [each.together for each in small.launches(case, "sm_90a").of_kernels] == [False, False]
    assert [each.together for each in EmulatorDevice().launches(case, "sm_90a").of_kernels] == [True]
    assert verify(case, small).verdict is Verdict.PASS


@pytest.mark.parametrize("nbytes", [1, 1 << 16, 1 << 20, 40 << 20, 1 << 30])
def test_copies_fill_the_l2_of_the_chip_and_not_its_memory(chip: Chip, nbytes: int):
    l2 = chip.properties["l2CacheSize"]
    copies = copies_for(nbytes, l2)
    assert copies == MOST_COPIES or copies * nbytes >= COLD * l2
    assert copies * nbytes <= COLD * l2 + 2 * nbytes
    assert copies * nbytes < chip.memory


def test_a_case_for_which_the_memory_is_too_small_is_excluded_by_number(chip: Chip):
    case = find_case("per_tensor/default/32768x8192/normal/graph")
    assert incapable(case, chip) == ""
    larger = find_case("per_tensor/default/131072x16384/normal/graph")
    have, needs = chip.memory >> 30, needed(larger) >> 30
    why = f"capability: needs about {needs} GiB of GPU memory, there are {have}"
    assert incapable(larger, chip) == (why if needed(larger) + CONTEXT > chip.memory else "")
    assert needs == 32


CARD = """\
code: own.cu
recipe: swizzle
launches: [{{kernel: k, grid: [{grid}], block: 128, {more}, arguments: [{{array: swizzled_scale_inv}}]}}]
"""
L4 = "capability: k takes 150,000 bytes of shared memory, and a CTA has at most 101,376 here"
TOGETHER = (
    "capability: k is 2,000 CTAs of 128 threads that run together, and this GPU holds at most {} at once ({} SMs, {} "
    "CTAs each {})"
)
# grid, the rest of a launch, and why each chip cannot hold it
BEYOND = {
    "shared memory": (1, "shared: 150000", {"L4": L4, "RTX 5060": L4}),
    "clusters": (2, "cluster: 2", {
        name: f"capability: k is launched in clusters, which begin with sm_90, and this GPU is {target}"
        for name, target in (("A100", "sm_80"), ("L4", "sm_89"))
    }),
    "a cooperative grid": (2000, "cooperative: true", {
        "A100": TOGETHER.format("1,728", 108, 16, "by threads"), "L4": TOGETHER.format("696", 58, 12, "by threads"),
        "RTX 5060": TOGETHER.format("360", 30, 12, "by threads"),
    }),
    "what no GPU holds is told by the launch": (1, "shared: 300000", {}),
    "what none can launch, too": (300_000, "cooperative: true", {}),
}  # fmt: skip


@pytest.mark.parametrize("name", BEYOND)
def test_a_launch_of_a_card_that_a_larger_chip_holds_is_excluded_by_number(
    chip: Chip, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    grid, more, why = BEYOND[name]
    monkeypatch.chdir(tmp_path)
    Path("own.cu").write_text('extern "C" __global__ void k(char* out) { *out = 0; }\n')
    Path("card.yaml").write_text(CARD.format(grid=grid, more=more))
    case = find_case("swizzle/default/48x80/normal/eager")
    (called,) = (each for each in CHIPS if CHIPS[each] is chip)
    assert incapable(case, with_card(chip, read_card("card.yaml"))) == why.get(called, "")
