"""How much an author writes; needs none of the savers."""

from __future__ import annotations

import pytest
import report


@pytest.mark.parametrize("subject", report.SUBJECTS, ids=lambda subject: subject.name)
def test_a_delete_hook_takes_twenty_lines_at_most(subject):
    lines = report.hook_lines(subject)
    hook = "_adelete_checkpoint_rows" if subject.is_async else report.DELETE
    assert 5 < lines[hook] <= 20, lines
