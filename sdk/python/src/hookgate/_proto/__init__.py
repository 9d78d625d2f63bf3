"""Generated from the .proto files by generate.py."""
