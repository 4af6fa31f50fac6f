"""Which trouble costs which norm how much."""
