"""The end of the deployment. Runs last."""

from __future__ import annotations

import pytest
from compose_stack import Stack

pytestmark = pytest.mark.containers


def test_down_leaves_nothing_behind(stack: Stack):
    assert stack.left_over()
    stack.down()
    assert stack.left_over() == []
