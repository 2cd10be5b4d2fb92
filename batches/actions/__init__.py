"""What a job can do: its columns, parameters, checks of a row, and the target made of it."""
