"""Several routers as one: each is linked to each other one, and passes on to it what its own consumers cannot take."""
