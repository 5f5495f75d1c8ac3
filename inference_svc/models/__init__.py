"""Models: what a decoder looks like, and how a checkpoint is read."""

from inference_svc.models.config import FAMILIES, ModelConfig, RopeScaling
from inference_svc.models.digest import digest
from inference_svc.models.errors import ModelError
from inference_svc.models.load import inspect, load_weights
from inference_svc.models.weights import LayerWeights, Weights

__all__ = [
    "FAMILIES",
    "LayerWeights",
    "ModelConfig",
    "ModelError",
    "RopeScaling",
    "Weights",
    "digest",
    "inspect",
    "load_weights",
]
