"""What a run did, as a page that a browser shows without a network, and as what a notebook displays."""
