"""What a model is: graphs, types, constants, and reading and writing them."""
