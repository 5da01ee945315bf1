"""What came out, compared with what should have."""
