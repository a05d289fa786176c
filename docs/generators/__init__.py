"""What of the documentation is made from the code: ``python -m docs.generators`` makes all of it anew."""
