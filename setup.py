"""What pyproject.toml cannot say: a wheel has the suites inside the package, a checkout beside it (`harness.files`).

The page of a package index has no files beside it, so README's links lead to SOURCE_URL, the address of the released
tree, or are plain words where nobody says it.
"""

import os
import re
from pathlib import Path

from setuptools import find_namespace_packages, setup

SOURCE = os.environ.get("SOURCE_URL", "").rstrip("/")
LINK = re.compile(r"\[([^][\n]+)\]\((?!https?:)([^)\s]+)\)")  # to a file of the tree

setup(
    packages=[*find_namespace_packages(include=["harness*", "ptx_emulator*"]), "harness.suites", "harness.suites.data"],
    package_dir={"harness.suites": "suites"},
    long_description=LINK.sub(rf"[\1]({SOURCE}/\2)" if SOURCE else r"\1", Path("README.md").read_text("utf-8")),
    long_description_content_type="text/markdown",
    project_urls={"Source": SOURCE} if SOURCE else {},
)
