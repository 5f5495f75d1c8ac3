"""``kev top``: a cluster's metrics, live in a terminal."""
