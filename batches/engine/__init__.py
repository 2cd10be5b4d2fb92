"""What runs by itself: lanes, rescue, and the moves of jobs."""
