"""Exact weighted reservoir sampling: each n-subset with probability proportional to the product of its weights."""
