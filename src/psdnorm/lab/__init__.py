"""Evidence without patients: simulated nights, and studies and dissections of norms on them."""
