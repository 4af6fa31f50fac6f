"""Pages and plot style shared by reports, comparisons, staging and the demo."""
