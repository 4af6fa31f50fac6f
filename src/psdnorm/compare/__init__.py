"""Compare two experiments or two checkpoints."""
