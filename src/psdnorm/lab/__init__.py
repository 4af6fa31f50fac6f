"""Evidence without patients."""
