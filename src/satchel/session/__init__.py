"""One conversation: its prompt, loaded skills, permissions and suggestions."""
