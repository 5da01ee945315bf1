"""What a tile takes and costs, the search for the best one, and the lower bound."""
