"""What engines are made of: the computation of a client, worker processes, a Ray cluster, Flower's simulation."""
