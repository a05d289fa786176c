"""What a run of the optimizer leaves: its steps, its journal as a file, its report, its result."""
