"""The CPU backend of our own: one C++ source, built per instruction set, bound through ctypes."""

from inference_svc.backends.native.backend import NativeBackend
from inference_svc.backends.native.errors import NativeUnavailable

__all__ = ["NativeBackend", "NativeUnavailable"]
