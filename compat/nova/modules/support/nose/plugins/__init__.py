"""Parts of nose that tests import."""
