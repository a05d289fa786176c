"""A folder of models in the browser: choose one, edit rules, run them, and see what fires."""
