"""Pages and notebook cards that show a run: self-contained HTML."""
