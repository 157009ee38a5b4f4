"""The subcommands of `tune`: what they ask of the other packages, and how they show the answer."""
