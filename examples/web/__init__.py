"""A page in which a browser calls a service, watches events, and sees typed errors."""
