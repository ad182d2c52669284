"""Users' own pipelines: a declarative project over their topics, made and run."""
