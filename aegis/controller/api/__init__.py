"""The handlers of the REST API, one file for each noun."""
