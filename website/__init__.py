"""The documentation site: MkDocs builds it from ``docs/``, from files beside it, and from the code (``make docs``)."""
