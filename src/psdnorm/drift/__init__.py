"""How far a night is from the training nights."""
