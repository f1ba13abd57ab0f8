"""What lies on disk: files written whole or not at all, locks, checkpoints, run folders, and where they come from."""
