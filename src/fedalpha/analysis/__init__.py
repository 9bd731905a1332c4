"""What rows say: histories, measures, statistics, comparisons, plots."""
