"""What ops take on this machine: measured in a runtime, kept in a database, and prices fitted to it."""
