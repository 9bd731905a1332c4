"""*Bench*: measurements that compare this library with others and with the machine."""
