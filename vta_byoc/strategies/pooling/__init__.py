"""Max and sum pooling."""
