"""Files of questions in, files of results out, and the run in between."""
