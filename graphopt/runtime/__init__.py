"""What a compiled program needs where it runs: numpy and the standard library."""
