"""What every strategy is made of."""
