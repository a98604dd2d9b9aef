"""The hot path, in C: what an annotation does when it is reached, and where its record waits for the drain."""
