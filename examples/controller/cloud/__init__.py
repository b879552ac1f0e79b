"""A cloud controller of three services: the program that the tutorial builds."""
