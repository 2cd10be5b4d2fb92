"""What runs a whole installation on one machine: set-up, embedded servers, the demo."""
