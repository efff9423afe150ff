"""The facts of training/everyday.yaml."""

from __future__ import annotations

from pathlib import Path

import yaml

Frame = tuple[list[str], list[str], list[str]]
"""Statements, questions, and noise."""

_CONTENT = yaml.safe_load((Path(__file__).parent / "everyday.yaml").read_text(encoding="utf-8"))
SLOTS: dict[str, list[str]] = {name: [str(value) for value in values] for name, values in _CONTENT["slots"].items()}
FRAMES: list[Frame] = [(frame["statements"], frame["questions"], frame["noise"]) for frame in _CONTENT["frames"]]
FILLERS: list[str] = _CONTENT["fillers"]
REACTIONS: list[str] = _CONTENT["reactions"]
OPENINGS: list[str] = _CONTENT["openings"]
ENDINGS: list[str] = _CONTENT["endings"]
