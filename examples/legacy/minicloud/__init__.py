"""A small cloud controller: compute nodes, a scheduler, and what asks them."""
