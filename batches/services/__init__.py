"""What people and commands may ask for: verbs with permission and audit."""
