"""What users read about a model."""
