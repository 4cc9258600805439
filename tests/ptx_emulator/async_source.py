"""The short functions of mbarriers, bulk copies and clusters that the museum's exhibits have, too."""

from __future__ import annotations

from harness.files import ROOT

PRELUDE = (ROOT / "evidence" / "museum" / "exhibits" / "asynchronous.cuh").read_text()
