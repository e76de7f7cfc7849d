"""Label transfer between collections of cells, AnnData objects or .h5ad files."""

from uniot.cells.transfer import LabelTransfer, transfer_labels

__all__ = ["LabelTransfer", "transfer_labels"]
