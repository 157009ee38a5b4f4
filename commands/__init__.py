"""The subcommands of `tune`: what they ask of the other rooms, and how they show the answer."""
