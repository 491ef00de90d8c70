"""What a model or checkpoint learned about position: numbers and figure descriptions, no drawing, no files."""
