"""How much memory a worker takes, worked out before it is started."""
