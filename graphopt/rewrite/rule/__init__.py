"""Rules as frozen values: patterns, guards, soundness classes, families."""
