"""Runs shared on the Hugging Face hub, or in a folder: the model travels, the target's data stay."""

from uniot.hub.client import Hub
from uniot.hub.sharing import pull, push, without_data

__all__ = ["Hub", "pull", "push", "without_data"]
