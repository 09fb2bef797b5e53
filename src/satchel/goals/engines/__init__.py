"""Engines store and run goals. Optional packages are imported only by their own engine."""
