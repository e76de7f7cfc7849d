"""Images to embeddings: pretrained backbones, extraction, and the store on disk.

Only what is asked for is imported: backbones need timm, which comes with `uniot[images]`.
"""
