"""``python -m fedalpha``."""

from fedalpha.cli import main

main()
