"""The rules that every program keeps."""
