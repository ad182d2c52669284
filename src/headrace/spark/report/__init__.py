"""Reports: one HTML file with charts drawn here, which opens without network."""
