"""The loop IR: buffers, loop nests, blocks and scalar expressions; its script, its interpreter."""
