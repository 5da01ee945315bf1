"""Models as Relay: text, the old JSON graph, parameter files, Model Library Format archives."""
