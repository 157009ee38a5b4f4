"""TVMScript text: printing, parsing, and the namespace T."""
