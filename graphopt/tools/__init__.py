"""What a command does with models beside optimizing and compiling them: inspect, diff, reduce, convert, extract."""
