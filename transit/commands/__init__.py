"""The subcommands, one file each; `command` is the click command."""
