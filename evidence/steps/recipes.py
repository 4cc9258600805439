"""The sources' recipes as flags of `forward` and `backward`, and the cases that the tables show for each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from harness.suite.suite import find_case, suite_of

SET = "steps"  # the set in the suites `forward`, `backward` and `gemm`
MODES = ("eager", "graph")


@dataclass(frozen=True)
class Recipe:
    """A way to train a layer.

    quantizer: the recipe whose suite verifies the bytes of its tensors
    forward, backward: its flags, as a case id spells them
    losses: its name in `results/quality/products.csv`
    """

    name: str
    source: str
    quantizer: str
    forward: str
    backward: str
    losses: str

    def case_id(self, pipeline: str, shape: str, mode: str) -> str:
        flags = self.forward if pipeline == "forward" else self.backward
        return _found(f"{pipeline}/{flags}/{shape}/normal/{mode}")


RECIPES = (
    Recipe(
        "per_tensor, as in production",
        "Transformer Engine main",
        "per_tensor",
        "route=library",
        "route=library",
        "per_tensor",
    ),
    Recipe(
        "row_scaled",
        "pull requests 2931 and 3324",
        "row_scaled",
        "epilogue=row_scaled,route=library,rht=false",
        "epilogue=row_scaled,route=library,rht=false,rounding=rne",
        "row_scaled",
    ),
    Recipe(
        "local_1x64",
        "pull request 2941",
        "local_1x64",
        "epilogue=windows,rht=false,weight_2d=false",
        "epilogue=windows,rht=false,rounding=rne,weight_2d=false",
        "windows",
    ),
    Recipe(
        "four_over_six, all tensors",
        "pull request 2972",
        "four_over_six",
        "route=library,rht=false,four_over_six=all",
        "route=library,rht=false,four_over_six=all",
        "four_over_six",
    ),
    Recipe(
        "per_token, fused",
        "pull request 3045",
        "per_token",
        "epilogue=per_token_fused,route=library",
        "epilogue=per_token_fused,route=library",
        "per_token_fused",
    ),
    Recipe(
        "per_token, fused, its own defaults",
        "pull request 3045",
        "per_token",
        "epilogue=per_token_fused,route=library,rht=false,weight_2d=false,scale_layout=swizzled",
        "epilogue=per_token_fused,route=library,rht=false,rounding=rne,weight_2d=false,scale_layout=swizzled",
        "per_token_defaults",
    ),
    Recipe(
        "per_token, scaled afterwards",
        "pull request 3045",
        "per_token",
        "epilogue=per_token,route=library",
        "epilogue=per_token,route=library",
        "per_token",
    ),
)
PRODUCTION = RECIPES[0]
FUSED, UNFUSED = RECIPES[4], RECIPES[6]


@cache
def shapes() -> tuple[tuple[int, int], ...]:
    """The (rows, cols) at which the source times its quantizer, from the bench set of `per_token`."""
    return tuple((int(shape[0]), int(shape[1])) for shape in suite_of("per_token").file.sets["bench"][0].shapes)


def layer(shape: tuple[int, int]) -> str:
    """M x K x N of a layer whose activations have these rows and cols; its weight is square."""
    rows, cols = shape
    return f"{rows}x{cols}x{cols}"


@cache
def _found(case_id: str) -> str:
    return find_case(case_id).id
