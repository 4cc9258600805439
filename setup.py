"""What pyproject.toml cannot say: a wheel has the suites inside the package, a checkout beside it (`harness.files`)."""

from setuptools import find_namespace_packages, setup

setup(
    packages=[*find_namespace_packages(include=["harness*", "ptx_emulator*"]), "harness.suites", "harness.suites.data"],
    package_dir={"harness.suites": "suites"},
)
