"""Cases that every engine of goals passes; `tests/goals/test_conformance.py` runs them."""
