"""What a shared gradient reveals: closed forms and gradient matching, registered among the evaluations."""
