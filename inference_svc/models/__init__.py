"""Models: what a decoder looks like, and how a checkpoint is read."""

from inference_svc.models.codes import Codes, ModelCodes
from inference_svc.models.config import FAMILIES, ModelConfig, RopeScaling
from inference_svc.models.digest import digest
from inference_svc.models.errors import ModelError
from inference_svc.models.load import has_codes, inspect, load_codes, load_weights
from inference_svc.models.weights import LayerWeights, Weights

__all__ = [
    "FAMILIES",
    "Codes",
    "LayerWeights",
    "ModelCodes",
    "ModelConfig",
    "ModelError",
    "RopeScaling",
    "Weights",
    "digest",
    "has_codes",
    "inspect",
    "load_codes",
    "load_weights",
]
