"""What a table of scores says, in sentences."""
