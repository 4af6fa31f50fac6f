"""Files, processes and documents; nothing about sleep."""
