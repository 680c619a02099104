"""What it costs to remember: ours and the peers', side by side in one run."""
