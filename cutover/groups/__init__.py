"""Consumer groups: what each kind needs, where each goes on, and the way back."""
