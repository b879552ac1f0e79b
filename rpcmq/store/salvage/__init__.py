"""Saving what can be read of a damaged SQLite store into a new one.

SQLite reads a table from its root on, and nothing of it where that is damaged. So this reads the pages themselves, and
takes each row that is as it was written. apsw comes without the tables for that which SQLite's shell has (``dbdata``).
"""
