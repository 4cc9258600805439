"""A value of a suite is what YAML 1.2 says: no word becomes true, no time of day a number."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.suite.yaml_lines import read


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e-3", 0.001), ("1.5e3", 1500.0), ("0o17", 15), ("0x10", 16), ("on", "on"), ("off", "off"), ("yes", "yes"),
     ("no", "no"), ("12:30", "12:30"), ("true", True), ("~", None), ("'1e-3'", "1e-3")],
)  # fmt: skip
def test_a_value_is_what_yaml_1_2_says(tmp_path: Path, text: str, value: object):
    path = tmp_path / "s.yaml"
    path.write_text(f"key: [{text}]\nother: {text}\n")
    data = read(path, path.name).data
    assert [data["other"], *data["key"]] == [value, value]
    assert type(data["other"]) is type(value)
