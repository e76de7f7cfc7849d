"""Take a run elsewhere: as one ONNX file, or shared on the Hugging Face hub without its samples."""
