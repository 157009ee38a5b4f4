"""Targets, workload suites and tuning presets: TOML that ships in the package, read through validated models."""

from __future__ import annotations

from .load import config, preset, presets, suite, suites, target, targets
from .schema import Budget, Entry, Suite

__all__ = ["Budget", "Entry", "Suite", "config", "preset", "presets", "suite", "suites", "target", "targets"]
