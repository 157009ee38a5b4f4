"""What `tune` says at the end."""

from __future__ import annotations

from stridesmith.commands.tune import speed


def test_speed_is_told_beside_the_peak() -> None:
    """A peak may not have been measured, and a program of integers has no speed in GFLOP/s."""
    assert speed({"gflops": 90.0, "peak_gflops": 120.0, "peak_fraction": 0.75}) == (
        "90.0 GFLOP/s, 75.0 % of the measured peak of 120 GFLOP/s"
    )
    assert speed({"gflops": 90.0, "peak_gflops": None}) == "90.0 GFLOP/s"
    assert "GFLOP/s" not in speed({"gflops": 0.0, "peak_gflops": 120.0, "peak_fraction": 0.0})
