"""What users call: tune, load, build, replay, and the kernel itself."""
