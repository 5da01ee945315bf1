"""What a run did, effect by effect, and whoever can say so."""
