"""One call that runs an experiment: settings, the run folder, callbacks."""
