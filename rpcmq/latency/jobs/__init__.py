"""Jobs that run in Spark or DuckDB; the only package that imports Spark."""
