"""A store in an SQLite file in the data directory, and the process that writes to it."""
