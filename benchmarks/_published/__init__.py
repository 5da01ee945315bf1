"""Published models: where their files are, and how one is measured."""
