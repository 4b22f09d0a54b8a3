"""The `sponson` command: one file per subcommand; no logic that another room could hold.

Every subcommand's module exports `command` and is imported only when it is called. `words` has what several of them
say.
"""
