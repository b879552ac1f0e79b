"""What runs in Spark, and the only package that imports it."""
