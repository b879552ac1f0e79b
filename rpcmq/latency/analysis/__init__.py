"""Statistics over histograms: no Spark, no files."""
