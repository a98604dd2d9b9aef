"""Reading a finished run: files only, never live state."""
