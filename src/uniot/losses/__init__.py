"""Losses as pure functions of tensors, one idea a file."""

from uniot.losses.common_class import common_class_loss
from uniot.losses.private_class import code_loss, private_class_loss, swapped_code_loss

__all__ = ["code_loss", "common_class_loss", "private_class_loss", "swapped_code_loss"]
