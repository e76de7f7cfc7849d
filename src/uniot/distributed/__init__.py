"""Embed and predict collections larger than one machine, in shards, with Ray Data (`pip install 'uniot[ray]'`)."""

from uniot.distributed.commands import ShardedOutput, embed_shards, predict_shards
from uniot.distributed.engine import Cluster

__all__ = ["Cluster", "ShardedOutput", "embed_shards", "predict_shards"]
