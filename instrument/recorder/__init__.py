"""The hot path, in C: what an annotation does when reached, and where its record waits for the drain."""
