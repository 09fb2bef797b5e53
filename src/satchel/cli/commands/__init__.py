"""One module per command or group of commands; imported when the command is run."""
