"""The short functions of mbarriers, bulk copies and clusters that the museum's exhibits have, too."""

from __future__ import annotations

from pathlib import Path

PRELUDE = (Path(__file__).parents[2] / "evidence" / "museum" / "exhibits" / "asynchronous.cuh").read_text()
