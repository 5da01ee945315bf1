"""Integer forms by kind of operator."""
