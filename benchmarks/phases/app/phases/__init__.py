"""A Flower app whose clients compute almost nothing: what is measured is the exchange of messages."""
