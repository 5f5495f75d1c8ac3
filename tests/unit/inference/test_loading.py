"""What keeps a model from being loaded is told by the name of its setting."""

from __future__ import annotations

from pathlib import Path

import pytest

from inference_svc.loading import ModelUnusable, load_model
from inference_svc.models import ModelError, inspect
from kev.config.settings import Settings


@pytest.mark.parametrize("wanted", [8193, 1_048_576])
def test_a_context_that_the_model_does_not_have_is_refused_at_the_start(default_model: Path, wanted: int) -> None:
    core = {"model_path": str(default_model), "max_context": wanted}
    settings = Settings.model_validate({"core": core, "router": {"channel_pool_size": 1}})
    told = rf"^core\.max_context: must be at most 8192 for this model, got {wanted}$"
    with pytest.raises(ModelUnusable, match=told):
        load_model(settings)


def test_the_models_own_length_and_a_sliding_window_bound_it(tiny_dirs: dict[str, Path]) -> None:
    for family, most in (("llama", 512), ("mistral", 256)):
        config, _ = inspect(tiny_dirs[family])
        config.check_context(most)
        with pytest.raises(ModelError, match=rf"core\.max_context: must be at most {most} for this model"):
            config.check_context(most + 1)
