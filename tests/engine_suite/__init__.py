"""Cases that every engine of goals passes; `tests/goals/test_conformance.py` runs them."""

import pytest

pytest.register_assert_rewrite(
    *(
        f"engine_suite.{name}"
        for name in ("answers", "bench", "execution", "outputs", "reports", "restarts", "revisions")
    )
)
