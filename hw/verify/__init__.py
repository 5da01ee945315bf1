"""What can go wrong with a Program in any order: the static verifier."""
