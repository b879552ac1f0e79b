"""Pages of the site that are made of the software, and the check of the built site. Sphinx loads ``pages``."""
