"""What the console must reach, measured as ratios within one run."""
