"""Programs from TVMScript text, and the namespace T."""
