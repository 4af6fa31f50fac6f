"""Convolutions of the models."""
