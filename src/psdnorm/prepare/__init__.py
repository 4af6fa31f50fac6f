"""From a recording to the store."""
