"""The built-in pipelines, and what runs them: records of runs, checkpoints, progress, stop requests."""
